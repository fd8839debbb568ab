package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A LineReader is a *bufio.Reader or a *bytes.Buffer.
type LineReader interface {
	io.Reader
	ReadBytes(delim byte) ([]byte, error)
}

// ReadCommand reads one command from a client. It returns the command's bytes and its arguments.
func ReadCommand(r LineReader) (raw []byte, args []string, err error) {
	raw, err = r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	n, err := number(raw, '*')
	for ; n > 0 && err == nil; n-- {
		var arg string
		raw, arg, err = readArgument(r, raw)
		args = append(args, arg)
	}
	return raw, args, err
}

// readArgument reads one argument, and appends its bytes to raw.
func readArgument(r LineReader, raw []byte) (more []byte, arg string, err error) {
	head, err := r.ReadBytes('\n')
	if err != nil {
		return raw, "", err
	}
	size, err := number(head, '$')
	if err != nil {
		return raw, "", err
	}
	body := make([]byte, size+2)
	if _, err = io.ReadFull(r, body); err != nil {
		return raw, "", err
	}
	return append(append(raw, head...), body...), string(body[:size]), nil
}

// number returns the number in a line that must start with the byte kind.
func number(line []byte, kind byte) (int, error) {
	if line[0] != kind {
		return 0, fmt.Errorf("redistest: %q does not start with %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(string(line[1:])))
}

// copyReply copies one reply from a server.
func copyReply(w io.Writer, r *bufio.Reader) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	if _, err = w.Write(line); err != nil {
		return err
	}
	rest := 0 // number of further elements that belong to this reply
	switch kind := line[0]; kind {
	case '$', '=', '!', '*', '~', '%':
		n, err := number(line, kind)
		if err != nil || n < 0 {
			return err
		}
		switch kind {
		case '$', '=', '!':
			_, err = io.CopyN(w, r, int64(n)+2)
			return err
		case '*', '~':
			rest = n
		case '%':
			rest = 2 * n
		}
	}
	for ; rest > 0 && err == nil; rest-- {
		err = copyReply(w, r)
	}
	return err
}

// scriptKeys returns the keys and the first argument of a script call. For any other command, it
// returns nil and "".
func scriptKeys(args []string) (keys []string, verb string) {
	if len(args) < 4 || !strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") {
		return nil, ""
	}
	n, err := strconv.Atoi(args[2])
	if err != nil || n < 1 || len(args) < 4+n {
		return nil, ""
	}
	return args[3 : 3+n], args[3+n]
}
