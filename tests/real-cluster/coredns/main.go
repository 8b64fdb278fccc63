// CoreDNS with the plugins of a cluster's DNS. The others are most of its build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func init() {
	// The order of CoreDNS's plugin.cfg.
	dnsserver.Directives = []string{"reload", "health", "ready", "errors", "log", "cache", "loadbalance", "kubernetes"}
}

func main() {
	coremain.Run()
}
