// Package lines answers JSON lines: one request a line on stdin, one answer a
// line on stdout, in the same order, each flushed.
package lines

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Each answers every line until stdin ends; a line that is not a request ends
// the process with status 1.
func Each[T any](answer func(T) any) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			var request T
			// Whole numbers become int64, as the API server reads them.
			if err := utiljson.Unmarshal(line, &request); err != nil {
				fail(fmt.Errorf("%w in %.200s", err, line))
			}
			if err := encoder.Encode(guarded(answer, request)); err != nil {
				fail(err)
			}
			if err := out.Flush(); err != nil {
				fail(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fail(err)
		}
	}
}

// A panic of Kubernetes' code is an answer too.
func guarded[T any](answer func(T) any, request T) (answered any) {
	defer func() {
		if caught := recover(); caught != nil {
			answered = map[string]string{"error": fmt.Sprint("panic: ", caught)}
		}
	}()
	return answer(request)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}
