package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Check returns an error if the given picture file cannot be written. It changes nothing, so it can
// be called before a long computation. It refuses to replace a file that is not a picture, because
// such a file is more likely a log.
func Check(file string) error {
	switch file {
	case "":
		return nil
	case "-":
		return errors.New("--picture: the standard output is for the report; name a file")
	}
	if !strings.EqualFold(filepath.Ext(file), ".svg") {
		return fmt.Errorf("--picture: %q does not end in .svg; name a file that does", file)
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkDirectory(file)
	case err == nil && info.IsDir():
		return writeError(file, syscall.EISDIR)
	case err == nil && info.Mode().IsRegular():
		return checkOld(file)
	case err != nil:
		return writeError(file, err)
	}
	return nil
}

// checkDirectory returns an error if no file can be created in the directory of file.
func checkDirectory(file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".slidegate-*")
	if err != nil {
		return writeError(file, err)
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// checkOld returns an error if an existing file is not a picture or cannot be written.
func checkOld(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return writeError(file, err)
	}
	begin := make([]byte, 512)
	n, err := f.Read(begin)
	_ = f.Close() // the file was only read
	if err == nil && !bytes.Contains(begin[:n], []byte("<svg")) {
		return fmt.Errorf("--picture: %q exists, and is not a picture; name another file", file)
	}
	return nil
}

func writeError(file string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("--picture: cannot write %q (%w); name a file in a directory of yours", file, err)
}

// Save writes the chart that draw returns to the given file. If the name is empty, Save does
// nothing.
func Save(file string, draw func() string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(draw()), 0o644); err != nil {
		return writeError(file, err)
	}
	return nil
}
