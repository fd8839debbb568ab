package flags

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
)

// Redis has the addresses of all --redis flags.
type Redis struct{ connect.Addresses }

// Decode adds the addresses of one flag.
func (r *Redis) Decode(c *kong.DecodeContext) error {
	list, err := value(c, "one, as in 127.0.0.1:6379")
	if err != nil {
		return err
	}
	return r.Add(list)
}

// Secret is the content of the file of --secret-file, without a newline at its end.
type Secret []byte

// Decode reads the file.
func (s *Secret) Decode(c *kong.DecodeContext) error {
	if len(*s) > 0 {
		return errTwice
	}
	var file Text
	if err := file.Decode(c); err != nil {
		return err
	}
	text, err := readSecret(string(file))
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("cannot read %q (%w); name the file that holds the secret", file, path.Err)
	}
	*s = bytes.TrimSuffix(text, []byte("\n"))
	switch {
	case err != nil:
		return err
	case len(text) > maxSecret:
		return fmt.Errorf("%q holds more than %d bytes; name the file that holds the secret", file, maxSecret)
	case len(*s) == 0:
		return fmt.Errorf("%q is empty; name the file that holds the secret", file)
	}
	return nil
}

// maxSecret is the most bytes that a file with a secret may hold.
const maxSecret = 64 << 10

// readSecret reads the file, and stops after maxSecret+1 bytes, because some files never end.
func readSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxSecret+1))
}
