package secret

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// countReads counts reads of secrets by their source and result. Without a registerer it counts nothing.
func countReads(metrics prometheus.Registerer, read readDocument) readDocument {
	if metrics == nil {
		return read
	}
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_secret_reads_total", Help: "Reads of secrets from their managers.",
	}, []string{"source", "result"})
	metrics.MustRegister(reads)
	for _, source := range []target.SecretSource{target.SecretsManager, target.SecretParameterStore, target.SecretVault} {
		reads.WithLabelValues(string(source), "read")
		for kind := secretmanager.Unreachable; kind <= secretmanager.Unusable; kind++ {
			reads.WithLabelValues(string(source), kind.String())
		}
	}
	return func(ctx context.Context, key documentKey, now time.Time) (string, error) {
		text, err := read(ctx, key, now)
		result := "read"
		if err != nil {
			var e *secretmanager.Error
			errors.As(err, &e)
			result = cmp.Or(e, &secretmanager.Error{Kind: secretmanager.Unusable}).Kind.String()
		}
		reads.WithLabelValues(string(key.Source), result).Inc()
		return text, err
	}
}
