package flags

import (
	"bytes"
	"os"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/smallfile"
)

// Redis holds the addresses of all --redis flags.
type Redis struct {
	connect.Addresses
	InEnv bool // SLIDEGATE_REDIS holds the same addresses
}

// Decode adds the addresses of one flag.
func (r *Redis) Decode(c *kong.DecodeContext) error {
	list, err := value(c, "one, as in 127.0.0.1:6379")
	if err != nil {
		return err
	}
	r.InEnv = len(r.InitAddress) == 0 && list == os.Getenv("SLIDEGATE_REDIS")
	return r.Add(list)
}

// RedisFiles holds the flags that name files for a connection to Redis. All commands share them.
type RedisFiles struct {
	CA       Text `name:"redis-ca" placeholder:"FILE" env:"SLIDEGATE_REDIS_CA" help:"The CA of Redis, in PEM."`
	Cert     Text `name:"redis-cert" placeholder:"FILE" env:"SLIDEGATE_REDIS_CERT" help:"A client certificate."`
	Key      Text `name:"redis-key" placeholder:"FILE" env:"SLIDEGATE_REDIS_KEY" help:"The certificate's key."`
	Password Text `name:"redis-password-file" placeholder:"FILE" env:"SLIDEGATE_REDIS_PASSWORD_FILE" help:"The password."`
}

// Names returns the names of the files.
func (f RedisFiles) Names() connect.Files {
	return connect.Files{CA: string(f.CA), Cert: string(f.Cert), Key: string(f.Key), Password: string(f.Password)}
}

// Secret is the contents of the file that --secret-file names, without a trailing newline.
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
	const holds = "the secret"
	text, err := smallfile.Read(string(file), holds)
	if err != nil {
		return err
	}
	if *s = bytes.TrimSuffix(text, []byte("\n")); len(*s) == 0 {
		return smallfile.Empty(string(file), holds)
	}
	return nil
}
