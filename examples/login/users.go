package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"

	"golang.org/x/crypto/argon2"
)

// users are the accounts, in place of a database.
type users map[string]hashed

// hashed is a password as a database keeps it.
type hashed struct {
	salt, hash []byte
}

func newUsers() users {
	return users{"alice": hash("correct horse"), "bob": hash("battery staple")}
}

// nobody is compared for accounts that do not exist, so that the answer takes as long.
var nobody = hash(rand.Text())

// check reports whether the password is the account's.
func (u users) check(_ context.Context, account, password string) (bool, error) {
	user, exists := u[account]
	if !exists {
		user = nobody
	}
	return user.is(password) && exists, nil
}

func hash(password string) hashed {
	salt := []byte(rand.Text())
	return hashed{salt, argon2id(password, salt)}
}

func (h hashed) is(password string) bool {
	return subtle.ConstantTimeCompare(h.hash, argon2id(password, h.salt)) == 1
}

// argon2id has the parameters of OWASP's Password Storage Cheat Sheet: 2 iterations, 19 MiB, 1 thread.
func argon2id(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, 2, 19*1024, 1, 32)
}
