package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/slidegate/slidegate/window"
)

// A laterError says that a delivery did not happen, and when to try again.
type laterError struct{ After time.Duration }

func (e laterError) Error() string { return fmt.Sprintf("deliver again after %v", e.After) }

// deliver sends a webhook. It waits for at most 10 s until the limits of the receiver allow it.
func deliver(ctx context.Context, limiter *window.Limiter, to *url.URL, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d, err := limiter.Wait(ctx, to.Host)
	if errors.Is(err, context.DeadlineExceeded) && d.RetryAfter > 0 {
		return laterError{d.RetryAfter} // back to the queue
	}
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s answered %s", to.Host, response.Status)
	}
	return nil
}

// How do I deliver webhooks without flooding a receiver?
func Example_webhooks() {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	to, err := url.Parse(receiver.URL)
	if err != nil {
		panic(err)
	}
	limiter, err := window.NewLocal(window.Config{Name: "webhooks", Limits: []window.Limit{
		window.Every(20 * time.Millisecond), window.PerMinute(2), // in production more, such as 600 a minute
	}})
	if err != nil {
		panic(err)
	}
	for range 2 {
		fmt.Println(deliver(context.Background(), limiter, to, []byte(`{"paid":true}`)))
	}
	var later laterError
	fmt.Println(errors.As(deliver(context.Background(), limiter, to, []byte(`{"paid":true}`)), &later))
	fmt.Println(later.After > 50*time.Second)
	// Output:
	// <nil>
	// <nil>
	// true
	// true
}
