package invoke_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// delivery is a request that a receiver verifies.
type delivery struct {
	name, secret, id, sent, signatures, body string
	genuine                                  bool
}

// verifiers are programs around the code in the docs. Each reads lines of secret, id, timestamp, signatures and body in
// base64, separated by tabs. For each line it prints whether it is genuine.
var verifiers = map[string]struct {
	needs, file string
	program     string // %s is the code in the docs
	run         []string
}{
	"go": {"go", "verify.go", `package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

%s
func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		body, _ := base64.StdEncoding.DecodeString(f[4])
		h := http.Header{"Webhook-Id": {f[1]}, "Webhook-Timestamp": {f[2]}, "Webhook-Signature": {f[3]}}
		fmt.Println(genuine(f[0], h, body))
	}
}
`, []string{"go", "run", "verify.go"}},
	"python": {"python3", "verify.py", `%s
import sys

for line in sys.stdin:
    f = line.rstrip("\n").split("\t")
    headers = {"webhook-id": f[1], "webhook-timestamp": f[2], "webhook-signature": f[3]}
    try:
        print(str(genuine(f[0], headers, base64.b64decode(f[4]))).lower())
    except ValueError:
        print("false")
`, []string{"python3", "verify.py"}},
	"js": {"node", "verify.js", `%s
for (const line of require("node:fs").readFileSync(0, "utf8").trimEnd().split("\n")) {
  const f = line.split("\t");
  const headers = { "webhook-id": f[1], "webhook-timestamp": f[2], "webhook-signature": f[3] };
  console.log(genuine(f[0], headers, Buffer.from(f[4], "base64")));
}
`, []string{"node", "verify.js"}},
	"ruby": {"ruby", "verify.rb", `%s
STDIN.each_line(chomp: true) do |line|
  f = line.split("\t", -1)
  headers = { "webhook-id" => f[1], "webhook-timestamp" => f[2], "webhook-signature" => f[3] }
  begin
    puts genuine?(f[0], headers, f[4].unpack1("m0"))
  rescue ArgumentError
    puts false
  end
end
`, []string{"ruby", "verify.rb"}},
	"java": {"java", "Verify.java", `import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Verify {
%s
  public static void main(String[] args) throws Exception {
    for (Scanner in = new Scanner(System.in); in.hasNextLine();) {
      String[] f = in.nextLine().split("\t", -1);
      Map<String, String> headers = Map.of("webhook-id", f[1], "webhook-timestamp", f[2], "webhook-signature", f[3]);
      try {
        System.out.println(genuine(f[0], headers, Base64.getDecoder().decode(f[4])));
      } catch (NumberFormatException e) {
        System.out.println(false);
      }
    }
  }
}
`, []string{"java", "Verify.java"}},
}

// deliveries returns a genuine delivery and changed copies of it.
func deliveries(t *testing.T) []delivery {
	t.Helper()
	current, next := symmetric('a', 24), symmetric('b', 64)
	i := withSecrets(t, map[string]string{"current": current, "next": next})
	url, requests := recorder(t)
	call := signedBy(callTo(url, "POST", ample), "current", "next")
	call.Payload = []byte("{\"text\": \"ünïcödé ✓\\n\", \"n\": [1,\t2]}\r\n")
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome = %+v", o)
	}
	got := <-requests
	with := func(name string, genuine bool, edit func(d *delivery)) delivery {
		d := delivery{
			name: name, secret: current, id: got.header.Get("webhook-id"), sent: got.header.Get("webhook-timestamp"),
			signatures: got.header.Get("webhook-signature"), body: string(got.body), genuine: genuine,
		}
		edit(&d)
		return d
	}
	at := func(moment time.Time) func(d *delivery) {
		return func(d *delivery) {
			d.sent = fmt.Sprint(moment.Unix())
			mac := hmac.New(sha256.New, []byte(strings.Repeat("a", 24)))
			fmt.Fprintf(mac, "%s.%s.%s", d.id, d.sent, d.body)
			d.signatures = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		}
	}
	return []delivery{
		with("as it came", true, func(*delivery) {}),
		with("by the other secret", true, func(d *delivery) { d.secret = next }),
		with("by a secret without its prefix", true, func(d *delivery) { d.secret = strings.TrimPrefix(next, "whsec_") }),
		with("a minute old", true, at(time.Now().Add(-time.Minute))),
		with("ten minutes old", false, at(time.Now().Add(-10*time.Minute))),
		with("of the future", false, at(time.Now().Add(10*time.Minute))),
		with("another secret", false, func(d *delivery) { d.secret = symmetric('c', 24) }),
		with("another body", false, func(d *delivery) { d.body += " " }),
		with("no body", false, func(d *delivery) { d.body = "" }),
		with("another id", false, func(d *delivery) { d.id += "1" }),
		with("another time", false, func(d *delivery) { d.sent = fmt.Sprint(time.Now().Add(time.Minute).Unix()) }),
		with("no time", false, func(d *delivery) { d.sent = "now" }),
		with("no signature", false, func(d *delivery) { d.signatures = "" }),
		with("half of a signature", false, func(d *delivery) { d.signatures = d.signatures[:20] }),
		with("another kind of signature", false,
			func(d *delivery) { d.signatures = strings.ReplaceAll(d.signatures, "v1,", "v2,") }),
	}
}

// The verification code in the docs accepts genuine requests only.
func TestVerificationCodeInTheDocsWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "targets.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Verification without a library")
	shown := regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(shown) != len(verifiers) {
		t.Fatalf("%d programs are shown, want %d", len(shown), len(verifiers))
	}
	all := deliveries(t)
	var input strings.Builder
	want := map[string]string{}
	for _, d := range all {
		fmt.Fprintf(&input, "%s\t%s\t%s\t%s\t%s\n", d.secret, d.id, d.sent, d.signatures,
			base64.StdEncoding.EncodeToString([]byte(d.body)))
		want[d.name] = fmt.Sprint(d.genuine)
	}
	for _, one := range shown {
		t.Run(one[1], func(t *testing.T) {
			t.Parallel()
			v, known := verifiers[one[1]]
			if !known {
				t.Fatal("this test has no program for this language")
			}
			if _, err := exec.LookPath(v.needs); err != nil {
				t.Skipf("SKIPPED: %s is not on this machine", v.needs) // also with CI=true: Carillon needs no Ruby
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, v.file), []byte(fmt.Sprintf(v.program, one[2])), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), v.run[0], v.run[1:]...)
			command.Dir, command.Stdin = dir, strings.NewReader(input.String())
			printed, err := command.CombinedOutput()
			lines := strings.Fields(string(printed))
			if err != nil || len(lines) != len(all) {
				t.Fatalf("%v: %v\n%s", v.run, err, printed)
			}
			got := map[string]string{}
			for n, d := range all {
				got[d.name] = lines[n]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("genuine (-want +got):\n%s", diff)
			}
		})
	}
}
