// Package logtest writes logs for tests.
package logtest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"testing"
)

// Write writes text to a file in a temporary directory of the test, and returns the file's name.
func Write(tb testing.TB, text string) string {
	tb.Helper()
	f, err := os.CreateTemp(tb.TempDir(), "*.log")
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
	return f.Name()
}

// Packed compresses text with gzip.
func Packed(tb testing.TB, text string) string {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}
