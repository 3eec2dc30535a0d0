package invoke

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// secretPatience is for how long a secret that was looked up is used: a rotated one comes into
// use within it, and a busy job does not read a file for every request.
const secretPatience = 10 * time.Second

// secrets looks up what jobs refer to.
type secrets struct {
	dir string
	mu  sync.Mutex
	of  map[string]foundSecret
}

type foundSecret struct {
	text  string
	until time.Time
}

func newSecrets(dir string) *secrets { return &secrets{dir: dir, of: map[string]foundSecret{}} }

// reveal returns what a secret is at now. Its error never holds any of it.
func (s *secrets) reveal(secret dispatcher.Secret, now time.Time) (string, error) {
	switch {
	case !secret.Value.IsZero():
		return secret.Value.Reveal(), nil
	case secret.Stored:
		return "", errors.New("what is stored does not open: this node lacks its key, or it was stored for another job, field or host")
	}
	s.mu.Lock()
	found, ok := s.of[secret.Reference]
	s.mu.Unlock()
	if ok && now.Before(found.until) {
		return found.text, nil
	}
	text, err := s.lookUp(secret.Reference)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.of, secret.Reference)
		return "", err
	}
	s.of[secret.Reference] = foundSecret{text, now.Add(secretPatience)}
	return text, nil
}

func (s *secrets) lookUp(reference string) (string, error) {
	if name, ok := strings.CutPrefix(reference, "env:"); ok && strings.HasPrefix(name, dispatcher.SecretEnvPrefix) {
		if text := os.Getenv(name); text != "" {
			return text, nil
		}
		return "", fmt.Errorf("%s is not set in the environment of this node", reference)
	}
	path, ok := strings.CutPrefix(reference, "file:")
	if !ok {
		return "", errors.New("the reference is of a kind that this version does not know")
	}
	text, err := s.readFile(path)
	var wrong *fs.PathError
	switch {
	case errors.As(err, &wrong):
		err = wrong.Err // the path is in the reference
	case err == nil && text == "":
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("%s in the directory of secrets: %w", reference, err)
	}
	return text, nil
}

// readFile reads a file below the directory, wherever its links lead within that.
func (s *secrets) readFile(path string) (string, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > dispatcher.MaxSecret {
		return "", fmt.Errorf("it is no file of at most %d KiB", dispatcher.MaxSecret>>10)
	}
	file, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, dispatcher.MaxSecret))
	return strings.TrimRight(string(text), "\r\n"), err
}
