package tautline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

func (o Options) credentials() (credentials.TransportCredentials, error) {
	switch {
	case o.TLSCert == "" && o.TLSKey == "" && o.TLSClientCA == "":
		return insecure.NewCredentials(), nil
	case o.TLSCert == "":
		return nil, errors.New("TLSCert (-tls-cert) is empty: name the file of the server's certificate")
	case o.TLSKey == "":
		return nil, errors.New("TLSKey (-tls-key) is empty: name the file of the certificate's key")
	}
	files := &tlsFiles{options: o}
	if err := files.load(); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return files.current(), nil
		},
	}), nil
}

// tlsFiles has the configuration of the files, and reads them again once they have changed.
type tlsFiles struct {
	options Options

	mu     sync.Mutex
	seen   [3]time.Time
	config *tls.Config
}

func (f *tlsFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.modified() != f.seen {
		if err := f.load(); err != nil {
			// The files may be half written: the next handshake tries again.
			slog.Warn("TLS files do not load; the previous ones stay in use", "error", err)
		}
	}
	return f.config
}

func (f *tlsFiles) modified() (times [3]time.Time) {
	for i, path := range []string{f.options.TLSCert, f.options.TLSKey, f.options.TLSClientCA} {
		if info, err := os.Stat(path); path != "" && err == nil {
			times[i] = info.ModTime()
		}
	}
	return times
}

func (f *tlsFiles) load() error {
	seen := f.modified()
	pair, err := tls.LoadX509KeyPair(f.options.TLSCert, f.options.TLSKey)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", f.options.TLSCert, f.options.TLSKey, err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2"},
		Certificates: []tls.Certificate{pair},
	}
	if path := f.options.TLSClientCA; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s has no certificate: write PEM", path)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	f.seen, f.config = seen, config
	return nil
}
