package charts

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Check returns an error if the given picture file cannot be written. It changes nothing, so it can
// be called before a long computation. It refuses to replace one of the given logs, or a file that
// is not a picture, because such a file is more likely a log.
func Check(file string, logs ...string) error {
	if file == "" {
		return nil
	}
	if !strings.EqualFold(filepath.Ext(file), ".svg") {
		return fmt.Errorf("--picture: %q does not end in .svg; name a file that does", file)
	}
	if old, err := os.Stat(file); err == nil {
		if err := checkOld(file, old, logs); err != nil {
			return err
		}
	}
	f, _, err := create(file)
	if err != nil {
		return writeError(file, err)
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// checkOld returns an error if an existing file is a log, is not a picture or cannot be written.
func checkOld(file string, old fs.FileInfo, logs []string) error {
	if !old.Mode().IsRegular() {
		return fmt.Errorf("--picture: %q is not a regular file; name another file", file)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return writeError(file, err)
	}
	begin := make([]byte, 512)
	n, err := f.Read(begin)
	_ = f.Close() // the file was only read
	begin = bytes.TrimLeft(begin[:n], "\ufeff \t\r\n")
	if err == nil && !bytes.HasPrefix(begin, []byte("<svg")) && !bytes.HasPrefix(begin, []byte("<?xml")) {
		return fmt.Errorf("--picture: %q exists, and is not a picture; name another file", file)
	}
	for _, log := range logs {
		if info, err := os.Stat(log); err == nil && os.SameFile(old, info) {
			return fmt.Errorf("--picture: %q is one of the logs; name another file", file)
		}
	}
	return nil
}

// create creates an empty file that can replace the given one: it is in the same directory and has
// the same mode. It also returns the name of the file to replace, without symbolic links.
func create(file string) (f *os.File, target string, err error) {
	mode := fs.FileMode(0o644)
	if old, err := os.Stat(file); err == nil {
		mode = old.Mode().Perm()
	}
	if target, err = filepath.EvalSymlinks(file); err != nil {
		target = file
	}
	f, err = os.OpenFile(filepath.Join(filepath.Dir(target), ".slidegate-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	return f, target, err
}

func writeError(file string, err error) error {
	if number := syscall.Errno(0); errors.As(err, &number) {
		err = number
	}
	advice := "name a file in a directory of yours"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		advice = "free some space, or name a file on another disk"
	}
	return fmt.Errorf("--picture: cannot write %q (%w); %s", file, err, advice)
}

// Save writes the chart that draw returns to the given file. After an error, an older file is
// unchanged. If the name is empty, Save does nothing.
func Save(file string, draw func() string) error {
	if file == "" {
		return nil
	}
	f, target, err := create(file)
	if err != nil {
		return writeError(file, err)
	}
	_, err = f.WriteString(draw())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return writeError(file, err)
	}
	return nil
}
