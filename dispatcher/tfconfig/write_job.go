package tfconfig

import (
	"fmt"
	"io"

	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/carillon-dev/carillon/dispatcher"
)

// WriteJob writes one job as Content.Write writes those of an app, with the names of its app and calendars in place of references.
// The defaults of its app are written out, because the app is not in the file.
func WriteJob(to io.Writer, job dispatcher.Job) error {
	w := writer{file: hclwrite.NewEmptyFile(), labels: map[string]string{}, variables: map[string]bool{}, owner: job.Name}
	tree, err := jobTree(job, nil)
	if err != nil {
		return fmt.Errorf("job %s: %w", job.Name, err)
	}
	w.resource(JobType, job.Name, job.App+"/"+job.Name, tree)
	_, err = w.file.WriteTo(to)
	return err
}
