package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"

	"golang.org/x/crypto/argon2"
)

// users holds the accounts. In a real service, they would be in a database.
type users map[string]hashed

// hashed is a password in the form in which a database would store it.
type hashed struct {
	salt, hash []byte
}

// newUsers returns the two accounts of this program.
func newUsers() users {
	return users{"alice": hash("correct horse"), "bob": hash("battery staple")}
}

// nobody is compared for accounts that do not exist, so that the response takes equally long.
var nobody = hash(rand.Text())

// check reports whether the password is right for the account.
func (u users) check(_ context.Context, account, password string) (bool, error) {
	user, exists := u[account]
	if !exists {
		user = nobody
	}
	return user.is(password) && exists, nil
}

// hash returns a hashed password with a new salt.
func hash(password string) hashed {
	salt := []byte(rand.Text())
	return hashed{salt, argon2id(password, salt)}
}

// is reports whether the password is the hashed one.
func (h hashed) is(password string) bool {
	return subtle.ConstantTimeCompare(h.hash, argon2id(password, h.salt)) == 1
}

// argon2id returns a hash with the parameters from OWASP's Password Storage Cheat Sheet: 2
// iterations, 19 MiB, 1 thread.
func argon2id(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, 2, 19*1024, 1, 32)
}
