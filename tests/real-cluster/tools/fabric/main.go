// fabric is the network between the sites of the cluster. Each site has a TUN
// device in its network namespace; fabric has the other ends. It holds each
// packet for the delay of its path and writes it to the device of its receiver.
//
//	fabric -delays FILE NAME=NETNS,PREFIX[,PREFIX...] ...
//
// An empty NETNS is fabric's own network. FILE has lines such as
//
//	n1 n2 10ms jitter 1ms loss 0.1     both ways: 10 to 11 ms, a tenth is lost
//	n1>n2 15ms                         one way
//	n2 n3 down
//
// A change takes effect within 0.3 s; a faulty file changes nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	device = "tautline0"
	// The packets that a path holds; more are dropped, as by a router.
	held = 16384
)

type site struct {
	name     string
	prefixes []netip.Prefix
	tun      int
}

type packet struct {
	due  int64 // CLOCK_MONOTONIC in ns
	data []byte
}

func main() {
	delays := flag.String("delays", "", "`FILE` with the delays")
	flag.Parse()
	var sites []site
	var names []string
	for _, arg := range flag.Args() {
		s, err := open(arg)
		if err != nil {
			log.Fatalf("fabric: %s: %v", arg, err)
		}
		sites = append(sites, s)
		names = append(names, s.name)
	}
	// A thread for each blocking call below, so that none waits for a processor.
	runtime.GOMAXPROCS(len(sites)*len(sites) + runtime.NumCPU())
	var current atomic.Pointer[paths]
	none := newPaths(len(sites))
	current.Store(&none)
	for i := range sites {
		queues := make([]chan packet, len(sites))
		for j := range sites {
			if j != i {
				queues[j] = make(chan packet, held)
				go deliver(sites[j], queues[j])
			}
		}
		go receive(i, sites, queues, &current)
	}
	log.Printf("fabric: ready, %d sites", len(sites))
	follow(*delays, names, &current)
}

// open makes the device of a site from NAME=NETNS,PREFIX...
func open(arg string) (site, error) {
	name, rest, _ := strings.Cut(arg, "=")
	fields := strings.Split(rest, ",")
	s := site{name: name}
	for _, field := range fields[1:] {
		prefix, err := netip.ParsePrefix(field)
		if err != nil {
			return s, err
		}
		s.prefixes = append(s.prefixes, prefix)
	}
	done := make(chan error)
	go func() {
		// Never unlocked: the thread in the other network ends with the goroutine.
		runtime.LockOSThread()
		var err error
		s.tun, err = openTun(fields[0])
		done <- err
	}()
	return s, <-done
}

func openTun(netns string) (int, error) {
	if netns != "" {
		ns, err := unix.Open("/run/netns/"+netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return -1, fmt.Errorf("setns: %w", err)
		}
	}
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	request, err := unix.NewIfreq(device)
	if err != nil {
		return -1, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return tun, unix.IoctlIfreq(tun, unix.TUNSETIFF, request)
}

// receive reads the packets that site i sends.
func receive(i int, sites []site, queues []chan packet, current *atomic.Pointer[paths]) {
	runtime.LockOSThread()
	buffer := make([]byte, 65536)
	for {
		n, err := unix.Read(sites[i].tun, buffer)
		if err != nil {
			report(sites[i].name+": read", err)
			continue
		}
		now := monotonic()
		if n < 20 || buffer[0]>>4 != 4 {
			continue // IPv6 has no addresses here
		}
		j := receiver(sites, netip.AddrFrom4([4]byte(buffer[16:20])))
		if j < 0 || j == i {
			continue
		}
		p := (*current.Load())[i][j]
		if p.down || rand.Float64() < p.loss {
			continue
		}
		delay := p.delay
		if p.jitter > 0 {
			delay += rand.N(p.jitter)
		}
		select {
		case queues[j] <- packet{now + int64(delay), append([]byte(nil), buffer[:n]...)}:
		default:
		}
	}
}

func receiver(sites []site, to netip.Addr) int {
	for j, s := range sites {
		for _, prefix := range s.prefixes {
			if prefix.Contains(to) {
				return j
			}
		}
	}
	return -1
}

// deliver writes the packets of one path, in their order.
func deliver(to site, queue <-chan packet) {
	runtime.LockOSThread()
	for p := range queue {
		due := unix.NsecToTimespec(p.due)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &due, nil) == unix.EINTR {
		}
		// EIO: the device is not up.
		if _, err := unix.Write(to.tun, p.data); err != nil && !errors.Is(err, unix.EIO) {
			report(to.name+": write", err)
		}
	}
}

func report(doing string, err error) {
	if errors.Is(err, unix.EINTR) {
		return
	}
	log.Printf("fabric: %s: %v", doing, err)
	time.Sleep(time.Second)
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// follow applies the file when two reads in a row agree: a writer may be half done.
func follow(file string, names []string, current *atomic.Pointer[paths]) {
	var applied, last string
	for ; ; time.Sleep(100 * time.Millisecond) {
		content, err := os.ReadFile(file)
		text := string(content)
		stable := err == nil && text == last
		last = text
		if !stable || text == applied {
			continue
		}
		applied = text
		p, err := parsePaths(text, names)
		if err != nil {
			log.Printf("fabric: %s is not applied: %v", file, err)
			continue
		}
		current.Store(&p)
		log.Printf("fabric: delays applied")
	}
}
