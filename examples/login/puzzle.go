package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/window"
)

// puzzles issues and verifies the challenges of this program: proofs of work, which the browser
// computes (puzzle.js). They need no other service, but slow attackers down only a little. A
// captcha or a code sent by email costs attackers more.
type puzzles struct {
	secret []byte
	once   *window.Limiter // allows each puzzle once
}

const (
	zeros    = 12 // bits; a solution takes 4,096 hashes on average
	validity = 10 * time.Minute
)

// issue returns a puzzle: find a solution such that the SHA-256 hash of the puzzle and the solution
// starts with 12 zero bits. The puzzle is signed for the account as it was typed, so it is not
// valid for other accounts.
func (p puzzles) issue(typed string, now time.Time) string {
	puzzle := strconv.FormatInt(now.Add(validity).Unix(), 10) + "." + rand.Text()
	return puzzle + "." + p.sign(puzzle, typed)
}

// sign returns the signature of a puzzle for an account.
func (p puzzles) sign(puzzle, typed string) string {
	mac := hmac.New(sha256.New, p.secret)
	_, _ = fmt.Fprintf(mac, "puzzle %q %q", puzzle, typed)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// solved reports whether the form contains a valid solution that has not been used before.
func (p puzzles) solved(r *http.Request, _ string) (bool, error) {
	puzzle, typed := r.PostFormValue("puzzle"), r.PostFormValue("account")
	if !p.valid(puzzle, typed, time.Now()) || !works(puzzle, r.PostFormValue("solution")) {
		return false, nil
	}
	d, err := p.once.Allow(r.Context(), puzzle)
	return d.Allowed, err
}

// valid reports whether a puzzle was issued for this account and has not expired.
func (p puzzles) valid(puzzle, typed string, now time.Time) bool {
	parts := strings.Split(puzzle, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(parts[2]), []byte(p.sign(parts[0]+"."+parts[1], typed))) {
		return false
	}
	expiry, err := strconv.ParseInt(parts[0], 10, 64)
	return err == nil && now.Unix() < expiry
}

// works reports whether a solution solves a puzzle.
func works(puzzle, solution string) bool {
	hash := sha256.Sum256([]byte(puzzle + "." + solution))
	return bits.LeadingZeros32(binary.BigEndian.Uint32(hash[:])) >= zeros
}
