// Command sms limits text messages that cost money: go run ./examples/recipes/sms
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/slidegate/slidegate/window"
)

// texts limits text messages that cost money.
type texts struct {
	address *window.Limiter // by the IP address that requests the message
	phone   *window.Limiter // by phone number
	prefix  *window.Limiter // by the first digits of the phone number
}

// newTexts creates the limiters. In production, window.New shares them between servers.
func newTexts(now func() time.Time) (t texts, err error) {
	t.address, err = window.NewLocal(window.Config{Name: "sms-address", Limits: []window.Limit{window.PerDay(20)}, Now: now})
	if err != nil {
		return t, err
	}
	t.phone, err = window.NewLocal(window.Config{Name: "sms-phone", Limits: []window.Limit{
		window.Every(30 * time.Second), window.PerDay(10),
	}, Now: now}) // now is nil in production
	if err != nil {
		return t, err
	}
	t.prefix, err = window.NewLocal(window.Config{Name: "sms-prefix", Limits: []window.Limit{window.PerHour(50)}, Now: now})
	return t, err
}

// send sends a message unless a limit denies it. The phone number is in E.164 format, such as
// +15550100123.
func (t texts) send(ctx context.Context, address, phone, text string) error {
	checks := []window.Check{
		{Limiter: t.address, Event: address},
		{Limiter: t.phone, Event: phone},
		{Limiter: t.prefix, Event: phone[:min(7, len(phone))]},
	}
	j, err := window.AllowAll(ctx, checks...)
	if err != nil {
		return err // without Redis, do not send messages that cost money
	}
	if !j.Allowed {
		return fmt.Errorf("no message now; retry after %v", j.RetryAfter)
	}
	err = sendSMS(ctx, phone, text)
	if errors.Is(err, errNotSent) { // certainly not sent: give back what was counted
		undos := make([]window.Undo, len(checks))
		for i, c := range checks {
			undos[i] = window.Undo{Limiter: c.Limiter, Event: c.Event, Decision: j.Decisions[i]}
		}
		err = errors.Join(append(window.UndoAll(ctx, undos...), err)...)
	}
	return err
}

var errNotSent = errors.New("the gateway refused the message")

// sendSMS stands in for the gateway.
func sendSMS(_ context.Context, phone, _ string) error {
	if phone == "+15550100999" {
		return errNotSent
	}
	return nil
}

func main() {
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	t, err := newTexts(func() time.Time { return at })
	if err != nil {
		log.Fatal(err)
	}
	for _, phone := range []string{"+15550100123", "+15550100123", "+15550100999", "+15550100999"} {
		fmt.Println(phone, t.send(context.Background(), "198.51.100.7", phone, "Your code is 123456"))
		at = at.Add(10 * time.Second)
	}
	d, err := t.prefix.Peek(context.Background(), "+155501")
	fmt.Println(49-d.Remaining, "counted for the prefix", err)
	// It prints:
	// +15550100123 <nil>
	// +15550100123 no message now; retry after 20s
	// +15550100999 the gateway refused the message
	// +15550100999 the gateway refused the message
	// 1 counted for the prefix <nil>
}
