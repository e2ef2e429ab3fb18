// Sends HMAC-signed webhooks over keep-alive connections, or over a new TLS connection each, and prints what came of
// them as one line of JSON. Compiled, because a load in Python would measure itself.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:8080", "scheme, host and port")
	path := flag.String("path", "/s", "path of the route")
	secret := flag.String("secret", "", "the route's secret")
	connections := flag.Int("connections", 64, "connections at once")
	seconds := flag.Float64("seconds", 10, "how long")
	size := flag.Int("size", 1024, "bytes of a body")
	fresh := flag.Bool("fresh", false, "a new connection for each request")
	flag.Parse()

	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	var lock sync.Mutex
	var all []float64
	statuses := map[string]int{}
	var group sync.WaitGroup
	for worker := 0; worker < *connections; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
				MaxConnsPerHost: 1, DisableKeepAlives: *fresh,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a certificate of the test's own
			}}
			var times []float64
			seen := map[string]int{}
			body := bytes.Repeat([]byte("x"), *size)
			for number := 0; time.Now().Before(end); number++ {
				copy(body, fmt.Sprintf("%d-%d-", worker, number))
				sum := sha256.Sum256(body)
				stamp, nonce := strconv.FormatInt(time.Now().Unix(), 10), fmt.Sprintf("%d-%d", worker, number)
				mac := hmac.New(sha256.New, []byte(*secret))
				fmt.Fprintf(mac, "v2\nPOST\n%s\n%s\n%s\n%s", *path, stamp, nonce, hex.EncodeToString(sum[:]))
				request, err := http.NewRequest("POST", *url+*path, bytes.NewReader(body))
				if err != nil {
					panic(err)
				}
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("X-Timestamp", stamp)
				request.Header.Set("X-Nonce", nonce)
				request.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
				began := time.Now()
				answer, err := client.Do(request)
				if err != nil {
					seen["error"]++
					continue
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				seen[strconv.Itoa(answer.StatusCode)]++
				times = append(times, float64(time.Since(began))/float64(time.Millisecond))
			}
			lock.Lock()
			defer lock.Unlock()
			all = append(all, times...)
			for status, count := range seen {
				statuses[status] += count
			}
		}(worker)
	}
	group.Wait()
	sort.Float64s(all)
	at := func(part float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return all[int(part*float64(len(all)-1))]
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"statuses": statuses, "per_s": float64(statuses["202"]) / *seconds,
		"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1),
	})
}
