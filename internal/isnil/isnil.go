// Package isnil finds nil pointers within interfaces, and pointers to zero values.
package isnil

import "reflect"

// Value reports whether v is nil, or a nil pointer. The latter is not equal to nil, so a program
// that ignores the error of a constructor would notice it only at the first call.
func Value(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// OrZero reports whether v is nil, or a pointer to nil or to a zero value, which no constructor
// returned.
func OrZero(v any) bool { return Value(v) || reflect.ValueOf(v).Elem().IsZero() }
