package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The deadlines for a server to be ready, and to end.
const (
	readyWithin = 60 * time.Second
	endWithin   = 15 * time.Second
)

// servers are the processes of a case.
type servers struct {
	dir     string
	running []*server
}

type server struct {
	name  string
	cmd   *exec.Cmd
	log   *os.File
	ended chan error
}

// start starts a process with its output in a file.
func (s *servers) start(name string, args []string, kubeconfig string) error {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	// If this process is killed, its servers are too, which frees the ports.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		log.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	running := &server{name: name, cmd: cmd, log: log, ended: make(chan error, 1)}
	go func() { running.ended <- cmd.Wait() }()
	s.running = append(s.running, running)
	return nil
}

// ready waits until a path of the server started last answers 200.
func (s *servers) ready(ctx context.Context, url string) error {
	last := s.running[len(s.running)-1]
	deadline := time.After(readyWithin)
	for {
		_, err := get(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case end := <-last.ended:
			last.ended <- end
			return fmt.Errorf("%s ended (%v):\n%s", last.name, end, last.tail())
		case <-deadline:
			return fmt.Errorf("%s is not ready after %v: %w\n%s", last.name, readyWithin, err, last.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends all servers and reports those that had ended before.
func (s *servers) stop() error {
	var failed error
	for _, server := range s.running {
		select {
		case err := <-server.ended:
			failed = fmt.Errorf("%s had ended (%v):\n%s", server.name, err, server.tail())
		default:
			_ = server.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-server.ended:
			case <-time.After(endWithin):
				_ = server.cmd.Process.Kill()
				<-server.ended
			}
		}
		server.log.Close()
	}
	s.running = nil
	return failed
}

// pids are the processes' names by PID.
func (s *servers) pids() map[int]string {
	pids := map[int]string{}
	for _, server := range s.running {
		pids[server.cmd.Process.Pid] = server.name
	}
	return pids
}

func (s *server) tail() string {
	text, _ := os.ReadFile(s.log.Name())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) > 20 {
		lines = lines[len(lines)-20:]
	}
	return strings.Join(lines, "\n")
}

// get returns the body of a page. It keeps no connection, as the benchmark checks for
// leaked goroutines at its end.
func get(ctx context.Context, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return string(body), err
}
