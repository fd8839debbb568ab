package adapter

import "reflect"

// IsNil reports whether v is nil or a nil pointer. An interface that contains a nil pointer is not
// equal to nil, so a program that ignores a constructor's error would notice it only at the first
// call.
func IsNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// IsNilOrZero reports whether v is nil, a nil pointer, or a pointer to a zero value, which no
// constructor returns.
func IsNilOrZero(v any) bool { return IsNil(v) || reflect.ValueOf(v).Elem().IsZero() }
