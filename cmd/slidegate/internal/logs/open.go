package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// checkNames returns an error if any of the files cannot be read. Open calls it before reading any
// of them.
func checkNames(names []string) error {
	for i, name := range names {
		if name == "-" {
			if slices.Contains(names[:i], "-") {
				return errors.New(`standard input is named twice; write "-" once`)
			}
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return unreadable(name, err)
		}
		if info.IsDir() {
			return fmt.Errorf("%q is a directory; name the logs in it", name)
		}
	}
	return nil
}

// unreadable returns an error that says why the named file cannot be read, and what to do about it.
func unreadable(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // does not repeat the file name
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %q; name a log (slidegate help replay shows how to get one), or no file for the built-in sample", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q cannot be read by this user; try sudo, or copy it", name)
	}
	return fmt.Errorf("cannot read %q (%w); name a log that can be read", name, err)
}

// open opens a file, and reads it until its format is known.
func (r *Reader) open(ctx context.Context, name string) (*file, error) {
	if name == "-" {
		f := newFile("standard input", interruptible(ctx, r.options.Stdin), r)
		return f, f.begin()
	}
	opened, err := openFile(ctx, name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	f := newFile(name, opened, r)
	f.stop = context.AfterFunc(ctx, func() { _ = opened.Close() }) // an interrupt must end the wait for a pipe
	if err := f.begin(); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// openFile opens the named file. When ctx is done, it no longer waits for a program that writes to
// a pipe.
func openFile(ctx context.Context, name string) (*os.File, error) {
	type opened struct {
		*os.File
		err error
	}
	result := make(chan opened, 1)
	go func() {
		f, err := os.Open(name)
		result <- opened{f, err}
	}()
	select {
	case r := <-result:
		return r.File, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// interruptible returns a reader of in that ends when ctx is done. Closing a terminal would not
// interrupt a pending read.
func interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}
