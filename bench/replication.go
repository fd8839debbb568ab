package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// replicated is how many decisions per contender the replication measurement makes.
const replicated = 200

// replications measures how many bytes each contender's decisions send to a replica. The bench acts
// as the replica, and reads the replication offsets of the masters.
func (b bench) replications(ctx context.Context, all []contender, res *result) error {
	b.log.Print("replication")
	for addr := range b.masters {
		listener, err := b.listen(ctx, addr)
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
	}
	if _, err := b.prepare(ctx, all, replicated); err != nil {
		return err
	}
	for i, c := range all {
		before, err := b.info(ctx, "replication", "master_repl_offset")
		if err == nil {
			_, err = b.measure(ctx, c, 0, replicated)
		}
		after, errAfter := b.info(ctx, "replication", "master_repl_offset")
		if err = errors.Join(err, errAfter); err != nil {
			return fmt.Errorf("replication of %s: %w", c.name, err)
		}
		res.Rows[i].Replicated = (after - before) / replicated
	}
	return nil
}

// listen connects to a master as a replica that discards everything.
func (b bench) listen(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err = conn.Write([]byte("SYNC\r\n")); err != nil {
		return nil, err
	}
	go io.Copy(io.Discard, conn) //nolint:errcheck // it ends with the connection
	master := b.masters[addr]
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late); <-time.After(10 * time.Millisecond) {
		info, err := master.Do(ctx, master.B().Info().Section("replication").Build()).ToString()
		if err != nil || strings.Contains(info, "state=online") {
			return conn, err
		}
	}
	return nil, fmt.Errorf("%s does not accept a replica", addr)
}
