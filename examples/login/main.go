// Command login is a small website whose login form is protected against brute force. Users are
// kept in memory, passwords are hashed with argon2id, and the session is kept in a cookie. To use
// it, copy it and replace the users and the sessions with those of your service.
//
//	go run ./examples/login                                  # counts in the memory of this process
//	go run ./examples/login -redis redis://127.0.0.1:6379    # counts in Redis
//
// Then open http://localhost:8080 and log in as alice with the password "correct horse". After five
// wrong passwords, the page says how long to wait, and offers a puzzle that lets you try again at
// once.
//
// On hosts other than localhost, it needs HTTPS, because its cookies are Secure.
package main

import (
	"crypto/rand"
	"flag"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis that keeps the counts; if empty, they are in memory")
	flag.Parse()
	secret := secretOf("LOGIN_SECRET")
	guard, once, err := limits(*redis, secret)
	if err != nil {
		log.Fatal(err)
	}
	site, err := newSite(guard, once, secret)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s and log in as alice, with the password %q", *listen, "correct horse")
	server := http.Server{Addr: *listen, Handler: site, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// secretOf returns the secret in an environment variable. If the variable is unset, secretOf
// returns a new secret, so in each run earlier cookies are invalid and counts start over.
func secretOf(variable string) []byte {
	if secret := os.Getenv(variable); secret != "" {
		return []byte(secret)
	}
	log.Printf("no %s in the environment, so known devices are forgotten when this program ends", variable)
	return []byte(rand.Text())
}

// limits returns the guard, and the limiter that accepts each puzzle once. The program starts even
// if Redis is down.
func limits(redis string, secret []byte) (guard *login.Guard, once *window.Limiter, err error) {
	guarded := login.Config{Name: "login", Secret: secret, Challenged: &login.Challenged{}}
	single := window.Config{Name: "puzzle", Secret: secret, Limits: []window.Limit{{Max: 1, Per: validity}}}
	if redis == "" {
		if guard, err = login.NewLocal(guarded); err == nil {
			once, err = window.NewLocal(single)
		}
		return guard, once, err
	}
	conn := window.Dial(redis)
	if guard, err = login.New(conn, guarded); err == nil {
		once, err = window.New(conn, single)
	}
	return guard, once, err
}
