// Package containers defines the protocol between redistest and the program
// cluster_test/containers. The program serves the methods of "Docker" by JSON-RPC on its standard
// input and output. It starts servers in containers, and removes them all when its input ends.
//
//	Docker.Find     time.Duration  Daemon      returns the Docker daemon, if it answers in time
//	Docker.Network  struct{}       string      creates a network without a way out, for a cluster
//	Docker.Start    Container      string      starts a server; returns its address on the network
//	Docker.Kill     int            struct{}    removes the server on this port
//	Docker.Pause    int            struct{}    freezes it
//	Docker.Resume   int            struct{}    ends a Pause
//	Docker.Isolate  int            struct{}    takes it off its network
//	Docker.Rejoin   int            string      ends an isolation; returns its new network address
//
// The last five methods take the server's port on the Docker host.
package containers

// Daemon describes the Docker daemon.
type Daemon struct {
	Image   string // the image that servers run
	Version string // of the Docker daemon
	Address string // the host on which container ports are published
}

// Port is the port on which servers listen in their containers.
const Port = 6379

// Container describes a server in a container.
type Container struct {
	Port    int               // on the Docker host; it identifies the server in other methods
	Network string            // the network of the server's cluster; "" if there is none
	Command []string          // the arguments of redis-server
	Files   map[string]string // the files in its directory, by name
	Ready   string            // what the server logs when it starts to answer
}
