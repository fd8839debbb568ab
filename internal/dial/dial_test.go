package dial

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestURL checks the options for various URLs, including those that Safe adds.
func TestURL(t *testing.T) {
	type options struct {
		addresses           string
		dialler, write      time.Duration
		user, password      string
		database            int
		master              string
		encrypted, sentinel bool // whether the server and Sentinels speak TLS
	}
	for url, want := range map[string]options{
		"redis://127.0.0.1:6379":                        {addresses: "127.0.0.1:6379", dialler: time.Second, write: 2 * time.Second},
		"redis://h?dial_timeout=3s&write_timeout=500ms": {addresses: "h:6379", dialler: 3 * time.Second, write: 500 * time.Millisecond},
		"redis://h:1?addr=i:2&addr=j:3":                 {addresses: "h:1 i:2 j:3", dialler: time.Second, write: 2 * time.Second},
		"redis://h:1?addr=i:2&master_set=m":             {addresses: "h:1 i:2", dialler: time.Second, write: 2 * time.Second, master: "m"},
		"rediss://h:1?master_set=m":                     {addresses: "h:1", dialler: time.Second, write: 2 * time.Second, master: "m", encrypted: true, sentinel: true},
		"rediss://u:p%2F@h:1/7":                         {addresses: "h:1", dialler: time.Second, write: 2 * time.Second, user: "u", password: "p/", database: 7, encrypted: true, sentinel: true},
		"unix:///run/redis.sock":                        {addresses: "/run/redis.sock", dialler: time.Second, write: 2 * time.Second},
	} {
		o, err := URL(url)
		Safe(&o)
		got := options{
			strings.Join(o.InitAddress, " "), o.Dialer.Timeout, o.ConnWriteTimeout, o.Username, o.Password, o.SelectDB,
			o.Sentinel.MasterSet, o.TLSConfig != nil, o.Sentinel.TLSConfig != nil,
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" || err != nil || Check(o) != nil {
			t.Errorf("%s: %v, %v (-want +got)\n%s", url, err, Check(o), diff)
		}
		if !o.AlwaysPipelining || o.Sentinel.Dialer.Timeout != o.Dialer.Timeout {
			t.Errorf("%s: %+v", url, o)
		}
	}
}

// TestBadURL checks that errors state what is wrong with a URL, but quote no part of it. In some of
// the URLs, a part of the password could be taken for a host or a path.
func TestBadURL(t *testing.T) {
	for url, want := range map[string]error{
		"":                             errEmpty,
		"OKAPI:6379":                   errScheme,
		"redis:/OKAPI":                 errScheme,
		"user:OKAPI@host":              errScheme,
		"http://OKAPI":                 errScheme,
		"OKAPI://host":                 errScheme,
		"redis://user:OKAPI/@host":     ErrLogin,
		"redis://user:1?OKAPI@host":    ErrLogin,
		"redis://user:1#OKAPI@host":    ErrLogin,
		"redis://user:OKAPI @host":     ErrLogin,
		"redis://user:OKAPI%@host":     errURL,
		"redis://host:OKAPI":           errHost,
		"redis://host:99999":           errHost,
		"redis://host:1:2":             errHost,
		"redis://h:1?addr=OKAPI:0":     errHost,
		"redis://host/OKAPI":           errDatabase,
		"redis://host/-1":              errDatabase,
		"redis://host/1/OKAPI":         errDatabase,
		"redis://host?db=OKAPI":        errDatabase,
		"redis://h?dial_timeout=OKAPI": errDuration,
		"redis://h?write_timeout=1":    errDuration,
	} {
		if _, err := URL(url); !errors.Is(err, want) || strings.Contains(err.Error(), "OKAPI") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if o, err := URL("unix://"); err != nil || !errors.Is(Check(o), errAddress) {
		t.Errorf("%v, %v", o.InitAddress, err)
	}
}

// TestNoTLS checks that the error for a server that does not answer a TLS handshake states that,
// and that it is a timeout but does not match context.DeadlineExceeded.
func TestNoTLS(t *testing.T) {
	server := redistest.Start(t)
	o, err := URL("rediss://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	Safe(&o) // a second to connect
	_, err = Client(o)
	var timeout interface{ Timeout() bool }
	if err == nil || !strings.Contains(err.Error(), "no answer to the TLS handshake from "+server.Addr()+" within 1s") || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) {
		t.Error(err)
	}
}

// TestNoPassword checks that no error of a real connection contains the password: with a host that
// has no address, with a server that rejects the password, and with a server that repeats the
// command.
func TestNoPassword(t *testing.T) {
	locked := redistest.Start(t, "--requirepass", "zebra")
	old := redistest.Start(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	for address, want := range map[string]string{
		"okapi.invalid:6379": "lookup okapi.invalid",
		locked.Addr():        "WRONGPASS",
		old.Addr():           "unknown command",
	} {
		o, err := URL("redis://:OKAPI@" + address)
		if err != nil {
			t.Fatal(err)
		}
		Safe(&o)
		_, err = Client(o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "OKAPI") {
			t.Error(err)
		}
	}
}

// TestNoHello checks that Safe options suit a server that lacks RESP3 and therefore client-side
// caching.
func TestNoHello(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "HELLO", "")
	o := rueidis.ClientOption{InitAddress: []string{server.Addr()}}
	Safe(&o)
	client, err := Client(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
}
