package chart

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const patience = 3 * time.Minute

// controlPlane is etcd and kube-apiserver on loopback; they end with the test.
type controlPlane struct {
	config   *rest.Config
	caFile   string
	clients  *kubernetes.Clientset
	dynamic  *dynamic.DynamicClient
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	binaries string
	dir      string
	mutex    sync.Mutex
	warnings []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *controlPlane) HandleWarningHeader(_ int, _, text string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.warnings = append(c.warnings, text)
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	binaries := os.Getenv("KUBEBUILDER_ASSETS")
	if binaries == "" {
		binaries = "../../target/control-plane"
	}
	binaries, err := filepath.Abs(binaries)
	check(t, err)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler"} {
		if _, err := os.Stat(filepath.Join(binaries, name)); err != nil {
			t.Skipf("%s is not in %s: run tests/control-plane/build", name, binaries)
		}
	}
	plane := &controlPlane{binaries: binaries, dir: t.TempDir()}

	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	plane.start(t, "etcd", "--name=e", "--data-dir="+plane.dir+"/etcd",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=e="+peer, "--unsafe-no-fsync", "--log-level=warn")

	plane.write(t, "tokens.csv", []byte("admin,admin,admin,system:masters\n"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	plane.write(t, "sa.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	check(t, err)
	plane.start(t, "kube-apiserver", "--etcd-servers="+client,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+plane.dir+"/apiserver",
		"--token-auth-file="+plane.dir+"/tokens.csv", "--authorization-mode=RBAC", "--allow-privileged",
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+plane.dir+"/sa.key",
		"--service-account-signing-key-file="+plane.dir+"/sa.key",
		// Both need the controller manager.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")

	plane.caFile = plane.dir + "/apiserver/apiserver.crt"
	eventually(t, "kube-apiserver is ready", func() error {
		// The API server writes its certificate as it starts.
		ca, err := os.ReadFile(plane.caFile)
		if err != nil {
			return err
		}
		plane.config = &rest.Config{
			Host: "https://" + address, BearerToken: "admin", WarningHandler: plane, QPS: 200, Burst: 200,
			TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		}
		plane.clients, err = kubernetes.NewForConfig(plane.config)
		if err != nil {
			return err
		}
		return plane.clients.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	plane.dynamic, err = dynamic.NewForConfig(plane.config)
	check(t, err)
	plane.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(plane.clients.Discovery()))
	return plane
}

// start runs a binary until the test ends. Its log is NAME.log.
func (c *controlPlane) start(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	check(t, err)
	command := exec.Command(filepath.Join(c.binaries, name), args...)
	command.Dir, command.Stdout, command.Stderr = c.dir, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the child when the thread ends that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
		}
	}()
	check(t, <-started)
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s:\n%s", name, c.tail(name))
		}
	})
}

func (c *controlPlane) log(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, name+".log"))
	return string(text)
}

func (c *controlPlane) tail(name string) string {
	text := c.log(name)
	return text[max(0, len(text)-3000):]
}

func (c *controlPlane) write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	check(t, os.WriteFile(path, text, 0o600))
	return path
}

func (c *controlPlane) writeKubeconfig(t *testing.T, name, token string) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": c.config.Host, "certificate-authority": c.caFile,
		}}},
		"users":    []any{map[string]any{"name": "c", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "c"}}},
	})
	check(t, err)
	return c.write(t, name+".kubeconfig", text)
}

// apply writes an object as helm does; unknown fields are errors.
func (c *controlPlane) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return err
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	force := true
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: "helm", FieldValidation: metav1.FieldValidationStrict, Force: &force,
	})
	return err
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func eventually(t *testing.T, goal string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("not in %s: %s: %w", patience, goal, err))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
