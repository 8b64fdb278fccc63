package tautline

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"tautline.io/sdk-go/ruleprovider"
)

// A CA, and certificates of it.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issue(t *testing.T, serial int64, name string, parent *authority) (*authority, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  parent == nil,
		BasicConstraintsValid: true,
	}
	own := &authority{template, key}
	signer := own
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	if own.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return own, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// write gives the files a time of their own: clocks of file systems are coarse.
func write(t *testing.T, folder string, pair tls.Certificate, written time.Time) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMutualTLSWithReload(t *testing.T) {
	ca, caPair := issue(t, 1, "ca", nil)
	_, first := issue(t, 2, "localhost", ca)
	_, second := issue(t, 3, "localhost", ca)
	_, known := issue(t, 4, "extender", ca)
	folder, now := t.TempDir(), time.Now()
	write(t, folder, caPair, now)
	if err := os.Rename(filepath.Join(folder, "crt"), filepath.Join(folder, "ca")); err != nil {
		t.Fatal(err)
	}
	write(t, folder, first, now)

	at := func(name string) string { return filepath.Join(folder, name) }
	server, err := Listen(Provider{Costs: spread}, Options{Listen: "127.0.0.1:0", TLSCert: at("crt"), TLSKey: at("key"), TLSClientCA: at("ca")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	// Calls over a new connection; returns the serial number of the server's certificate.
	call := func(certificates ...tls.Certificate) (serial int64, err error) {
		config := &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certificates}
		config.VerifyConnection = func(state tls.ConnectionState) error {
			serial = state.PeerCertificates[0].SerialNumber.Int64()
			return nil
		}
		conn, err := grpc.NewClient(server.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = ruleprovider.NewRuleProviderClient(conn).EndpointCost(ctx, &CostRequest{}, grpc.WaitForReady(len(certificates) > 0))
		return serial, err
	}
	if serial, err := call(known); serial != 2 || err != nil {
		t.Errorf("serial %d, %v", serial, err)
	}
	if _, err := call(); err == nil {
		t.Error("a client without a certificate was served")
	}

	// A broken pair leaves the first one in use.
	if err := os.WriteFile(at("key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(at("key"), now.Add(time.Second), now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if serial, err := call(known); serial != 2 || err != nil {
		t.Errorf("broken pair: serial %d, %v", serial, err)
	}
	write(t, folder, second, now.Add(time.Minute))
	if serial, err := call(known); serial != 3 || err != nil {
		t.Errorf("second pair: serial %d, %v", serial, err)
	}
}
