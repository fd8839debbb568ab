package send_test

import (
	"context"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/send"
	"github.com/slidegate/slidegate/window"
)

// A witness is a Client that records the callers of Send.
type witness struct{ callers []string }

func (*witness) Close() {}

func (w *witness) Send(_ context.Context, calls []*connection.ScriptCall) {
	stack := make([]byte, 1<<16)
	w.callers = append(methods(string(stack[:runtime.Stack(stack, false)])), "Client.Send")
	for _, c := range calls {
		c.Answer([]int64{1, 0, 1, 0, 1}, nil)
	}
}

// ours matches one of our methods in a stack trace.
var ours = regexp.MustCompile(`(?m)^github\.com/slidegate/slidegate/[a-z/]+\.\(\*(\w+)\)(\.\w+)\(`)

// methods returns our methods in a goroutine's stack trace, outermost first.
func methods(stack string) (all []string) {
	for _, m := range ours.FindAllStringSubmatch(stack, -1) {
		all = append(all, m[1]+m[2])
	}
	slices.Reverse(all)
	return all
}

// inPut returns the stack trace of a goroutine that waits in queue.put.
func inPut() string {
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, ").put(") {
				return stack
			}
		}
	}
}

// TestPath compares the path of a decision in docs/design.md with the stack traces of the two
// goroutines that handle the decision.
func TestPath(t *testing.T) {
	client := &witness{}
	conn := connection.On(client)
	l, err := window.New((*window.Connection)(conn), window.Config{Name: "path", Limits: []window.Limit{window.PerHour(1)}})
	if err != nil {
		t.Fatal(err)
	}
	unblock, done := send.Block(conn), make(chan error)
	go func() {
		_, err := l.Allow(t.Context(), "an event")
		done <- err
	}()
	caller := inPut()
	unblock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	var path []string
	for _, m := range regexp.MustCompile("(?m)^\\d+\\. `(\\w+\\.\\w+)`").FindAllStringSubmatch(string(page), -1) {
		path = append(path, m[1])
	}
	if diff := cmp.Diff(slices.Concat(methods(caller), client.callers), path); diff != "" {
		t.Errorf("docs/design.md (-stacks +page)\n%s", diff)
	}
}
