package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/window"
)

// TestPuzzle checks that a solution is valid only once, only for the account of its puzzle, and
// only until the puzzle expires.
func TestPuzzle(t *testing.T) {
	once, err := window.NewLocal(window.Config{Name: "puzzle", Limits: []window.Limit{{Max: 1, Per: validity}}})
	if err != nil {
		t.Fatal(err)
	}
	p := puzzles{[]byte("0123456789abcdef"), once}
	puzzle, late := p.issue("alice", time.Now()), p.issue("alice", time.Now().Add(-validity))
	shifted := p.issue("x\nalice", time.Now())
	end := strings.LastIndexByte(shifted, '.')
	for _, row := range []struct {
		what, account, puzzle, solution string
		want                            bool
	}{
		{"another account", "bob", puzzle, solve(puzzle), false},
		{"part of another account", "alice", shifted[:end] + "\nx" + shifted[end:], solve(shifted[:end] + "\nx" + shifted[end:]), false},
		{"too late", "alice", late, solve(late), false},
		{"nothing", "alice", "", "", false},
		{"another puzzle", "alice", "9" + puzzle, solve("9" + puzzle), false},
		{"unsolved", "alice", puzzle, "no number", false},
		{"solved", "alice", puzzle, solve(puzzle), true},
		{"again", "alice", puzzle, solve(puzzle), false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
		r.PostForm = url.Values{"account": {row.account}, "puzzle": {row.puzzle}, "solution": {row.solution}}
		if ok, err := p.solved(r, row.account); ok != row.want || err != nil {
			t.Errorf("%s: %t, %v", row.what, ok, err)
		}
	}
}

// solve solves a puzzle in the same way as puzzle.js.
func solve(puzzle string) string {
	for i := 0; ; i++ {
		if solution := strconv.Itoa(i); works(puzzle, solution) {
			return solution
		}
	}
}

// TestUsers checks that a password is accepted only for its own account, and that no password is
// accepted for an account that does not exist.
func TestUsers(t *testing.T) {
	u := newUsers()
	for account, password := range map[string]string{"alice": "correct horse", "bob": "battery staple", "carol": "correct horse"} {
		if ok, err := u.check(t.Context(), account, password); ok != (account != "carol") || err != nil {
			t.Errorf("%s: %t, %v", account, ok, err)
		}
		if ok, err := u.check(t.Context(), account, "wrong"); ok || err != nil {
			t.Errorf("%s with a wrong password: %t, %v", account, ok, err)
		}
	}
}
