package main

import (
	"strings"
	"sync"
	"testing"
)

// secretWords lists the parts of all users and passwords in the addresses below.
var secretWords = []string{"zebra", "lynx", "quagga", "okapi"}

// TestPasswordIsNotPrinted gives the commands unusual Redis addresses, in flags and in the
// environment. No output may contain a part of the user or the password. Each error must be a
// single sentence that says what to do. No server listens at those addresses that are valid.
func TestPasswordIsNotPrinted(t *testing.T) {
	addresses := append(loginsWith(), oddAddresses...)
	if len(addresses) < 200 {
		t.Fatalf("%d addresses", len(addresses))
	}
	commands := map[string][]string{
		"inspect":   {"login", "e"},
		"reset":     {"--yes", "login", "e"},
		"override":  {"--block", "--for", "1h", "--why", "x", "login", "e"},
		"overrides": {"login"},
		// A busy machine takes long to connect.
		"proxy":  {"--to", "http://127.0.0.1:1", "--limit", "5/1h", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--timeout", "1m"},
		"replay": nil,
	}
	readers := []string{"inspect", "reset", "override", "overrides", "proxy"} // commands that read the environment, each tested with a fifth of the addresses
	for i, address := range addresses {
		if testing.Short() && i%7 > 0 {
			continue
		}
		for name, args := range commands {
			args = append([]string{name}, args...)
			checkHidden(t, name+" --redis", address, append(args, "--redis="+address))
			if name == readers[i%len(readers)] && !strings.Contains(address, "\x00") { // an environment variable cannot contain a zero byte
				t.Run("", func(t *testing.T) {
					t.Setenv("SLIDEGATE_REDIS", address)
					checkHidden(t, name, address, args)
				})
			}
		}
	}
}

// loginsWith returns addresses with special characters in the user or the password, with and
// without a scheme.
func loginsWith() (addresses []string) {
	for _, c := range strings.Split("/ # ? % %2 %2F @ @@ : :// [ ] [] , ,, ; & = + ! $ * ( ) ' \" ` \\ < > { } | ^ ~ é \xff \x00 \t \n \r\n \x1b[2J //", " ") {
		for _, login := range []string{"zebra" + c + "lynx:quagga", "zebra:quagga" + c + "okapi"} {
			addresses = append(addresses, "redis://"+login+"@127.0.0.1:1", login+"@127.0.0.1:1")
		}
	}
	return append(addresses, "redis://zebra lynx:quagga okapi@127.0.0.1:1", "zebra lynx:quagga okapi@127.0.0.1:1")
}

// oddAddresses have other mistakes, or none.
var oddAddresses = []string{
	"zebra@127.0.0.1:1", "zebra:quagga@127.0.0.1", "zebra:quagga@", ":quagga@127.0.0.1:1", "zebra:@127.0.0.1:1", ":@127.0.0.1:1", "@127.0.0.1:1", "@",
	"redis://zebra@127.0.0.1:1", "redis://:quagga@127.0.0.1:1", "redis://zebra:@127.0.0.1:1", "redis://:@127.0.0.1:1", "redis://@127.0.0.1:1",
	"rediss://zebra:quagga@127.0.0.1:1", "REDIS://zebra:quagga@127.0.0.1:1", "valkey://zebra:quagga@127.0.0.1:1", "unix://zebra:quagga@/no/such/socket",
	"http://zebra:quagga@127.0.0.1:1", "https://zebra:quagga@127.0.0.1:1", "redis+sentinel://zebra:quagga@127.0.0.1:1", "tcp://zebra:quagga@127.0.0.1:1",
	"://zebra:quagga@127.0.0.1:1", "redis:zebra:quagga@127.0.0.1:1", "redis:/zebra:quagga@127.0.0.1:1", "redis//zebra:quagga@127.0.0.1:1", "redis:///zebra:quagga@127.0.0.1:1",
	" redis://zebra:quagga@127.0.0.1:1", "redis://zebra:quagga@127.0.0.1:1 ", "\"redis://zebra:quagga@127.0.0.1:1\"", "SLIDEGATE_REDIS=redis://zebra:quagga@127.0.0.1:1",
	"redis://zebra:quagga@127.0.0.1:port", "redis://zebra:quagga@127.0.0.1:99999", "redis://zebra:quagga@127.0.0.1:-1", "redis://zebra:quagga@127.0.0.1:0", "redis://zebra:quagga@127.0.0.1:1:1",
	"redis://zebra:quagga@127.0.0.1:1/", "redis://zebra:quagga@127.0.0.1:1/3", "redis://zebra:quagga@127.0.0.1:1/x", "redis://zebra:quagga@127.0.0.1:1/3/4", "redis://zebra:quagga@127.0.0.1:1/@x",
	"redis://zebra:quagga@127.0.0.1:1?db=3", "redis://zebra:quagga@127.0.0.1:1?db=x", "redis://zebra:quagga@127.0.0.1:1?dial_timeout=x", "redis://zebra:quagga@127.0.0.1:1#x", "redis://zebra:quagga@127.0.0.1:1#@x",
	"redis://127.0.0.1:1?addr=zebra:quagga@127.0.0.1:1", "redis://127.0.0.1:1?addr=zebra@127.0.0.1:1", "redis://127.0.0.1:1/zebra:quagga@x", "redis://127.0.0.1:1#zebra:quagga@x",
	"redis://zebra:quagga@::1:1", "redis://zebra:quagga@[::1:1", "redis://zebra:quagga@::1]:1", "redis://zebra:quagga@[::1]:1", "redis://[zebra:quagga@::1]:1", "zebra:quagga@::1:1", "zebra:quagga@[::1]:1",
	"redis://zebra:1/okapi@127.0.0.1:1", "redis://zebra:1?okapi@127.0.0.1:1", "redis://zebra:1#okapi@127.0.0.1:1",
	"127.0.0.1:1,zebra:quagga@127.0.0.1:1", "127.0.0.1:1,redis://zebra:quagga@127.0.0.1:1", "redis://zebra:quagga@127.0.0.1:1,127.0.0.1:2", "redis://zebra:quagga@127.0.0.1:1,redis://zebra:quagga@127.0.0.1:1",
	"zebra:quagga@127.0.0.1:1,zebra:quagga@127.0.0.1:2", "zebra:quagga@redis://127.0.0.1:1", "unix://zebra/quagga@/no/such/socket", "redis://zebra:quagga (from envar @127.0.0.1:1",
	"127.0.0.1:1,password=quagga", "127.0.0.1:1,user=zebra,password=quagga", "127.0.0.1:1 -a quagga", "-a quagga -h 127.0.0.1",
	"zebra%3Aquagga%40127.0.0.1:1", "redis%3A//zebra%3Aquagga%40127.0.0.1:1", "zebra:quagga\uff20127.0.0.1:1", "127.0.0.1:1:quagga",
}

// checkHidden runs a command that reads the address, and checks its output.
func checkHidden(t *testing.T, name, address string, args []string) {
	t.Helper()
	status, shown := runReady(t, args)
	for _, word := range secretWords {
		if strings.Contains(shown, word) {
			t.Errorf("%s %q shows %s:\n%s", name, address, word, shown)
		}
	}
	if started := strings.Contains(shown, "msg=ready"); started {
		if status != 0 || !strings.Contains(shown, ": no Redis server or cluster answers there (") {
			t.Errorf("%s %q: status %d, %s", name, address, status, shown)
		}
		return
	}
	if status != 1 || !strings.HasPrefix(shown, "slidegate: ") || strings.Count(shown, "\n") != 1 || nextSentence.MatchString(shown) || !strings.Contains(shown, "; ") {
		t.Errorf("%s %q: status %d, %s", name, address, status, shown)
	}
}

// untilReady collects the output of a program, and calls ready when a proxy is ready.
type untilReady struct {
	mu    sync.Mutex
	text  strings.Builder
	ready func()
}

func (u *untilReady) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if strings.Contains(string(b), "msg=ready") {
		u.ready()
	}
	return u.text.Write(b)
}

func (u *untilReady) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.text.String()
}
