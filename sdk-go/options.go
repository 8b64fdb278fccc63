package tautline

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Options of a server. The zero value listens on port 5309 of all addresses, without TLS.
type Options struct {
	// Listen is the address, such as 127.0.0.1:5309; port 0 takes a free one.
	Listen string
	// TLSCert and TLSKey are PEM files of the server, reloaded when they change.
	TLSCert, TLSKey string
	// TLSClientCA is the PEM file of the CA that clients must have a certificate of.
	TLSClientCA string
}

func (o Options) listen() string { return cmp.Or(o.Listen, ":5309") }

// Flags adds the flags -listen, -tls-cert, -tls-key and -tls-client-ca. Their defaults are the
// variables LISTEN, TLS_CERT, TLS_KEY and TLS_CLIENT_CA.
func Flags(flags *flag.FlagSet) *Options {
	o := &Options{}
	flags.StringVar(&o.Listen, "listen", cmp.Or(os.Getenv("LISTEN"), ":5309"), "`address` to listen on, also $LISTEN; port 0 takes a free one")
	flags.StringVar(&o.TLSCert, "tls-cert", os.Getenv("TLS_CERT"), "PEM `file` of the server's certificate, also $TLS_CERT")
	flags.StringVar(&o.TLSKey, "tls-key", os.Getenv("TLS_KEY"), "PEM `file` of the certificate's key, also $TLS_KEY")
	flags.StringVar(&o.TLSClientCA, "tls-client-ca", os.Getenv("TLS_CLIENT_CA"), "PEM `file` of the CA that clients must have a certificate of, also $TLS_CLIENT_CA")
	return o
}

// Main parses the command line with Flags, prints the address, and serves the provider until SIGTERM
// or Ctrl-C. An error ends the process with status 1.
func Main(provider Provider) {
	options := Flags(flag.CommandLine)
	flag.Parse()
	if err := noArguments(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	if err := run(provider, *options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func noArguments(rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	return fmt.Errorf("argument %q is not a flag: write flags only, such as -listen 127.0.0.1:5309", rest[0])
}

func run(provider Provider, options Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := Listen(provider, options)
	if err != nil {
		return err
	}
	fmt.Println("listening on", server.Addr())
	return server.Serve(ctx)
}
