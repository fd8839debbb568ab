// Package isnil detects nil pointers in interfaces, and pointers to zero values.
package isnil

import "reflect"

// Value reports whether v is nil or a nil pointer. An interface that contains a nil pointer is not
// equal to nil, so a program that ignores a constructor's error would notice it only at the first
// call.
func Value(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// OrZero reports whether v is nil, a nil pointer, or a pointer to a zero value, which no
// constructor returns.
func OrZero(v any) bool { return Value(v) || reflect.ValueOf(v).Elem().IsZero() }
