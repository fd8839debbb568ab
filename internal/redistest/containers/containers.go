// Package containers holds what redistest and the program cluster_test/containers say to each other. The program serves the methods of
// "Docker" by JSON-RPC on its standard input and output. It starts servers in containers, and removes them all when its input ends.
//
//	Docker.Find     time.Duration  Daemon      what answers as Docker within this time
//	Docker.Network  struct{}       string      makes a network without a way out, for a cluster
//	Docker.Start    Container      string      starts a server and returns its address on the network
//	Docker.Kill     int            struct{}    removes the server on this port; this and all below take its port
//	Docker.Pause    int            struct{}    freezes it
//	Docker.Resume   int            struct{}    ends a Pause
//	Docker.Isolate  int            struct{}    takes it off its network
//	Docker.Rejoin   int            string      ends an isolation and returns its new address on the network
package containers

// Daemon describes what answers as Docker.
type Daemon struct {
	Image   string // what servers run
	Version string // of the Docker daemon
	Address string // where the ports of containers are
}

// Port is where servers listen within their containers.
const Port = 6379

// Container describes a server in a container.
type Container struct {
	Port    int               // of the Docker host, by which other calls name the server
	Network string            // of its cluster; empty: it is in none
	Command []string          // what follows redis-server
	Files   map[string]string // what is in its directory
	Ready   string            // what it logs when it answers
}
