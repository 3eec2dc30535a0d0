package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// shardModel is which part of a broadcast a run is.
type shardModel struct {
	Index    types.Int64  `tfsdk:"index"`
	Total    types.Int64  `tfsdk:"total"`
	Endpoint types.String `tfsdk:"endpoint"`
}

// shardCountsModel is what has become of the shards of a broadcast.
type shardCountsModel struct {
	Total      types.Int64 `tfsdk:"total"`
	Succeeded  types.Int64 `tfsdk:"succeeded"`
	Superseded types.Int64 `tfsdk:"superseded"`
	Failed     types.Int64 `tfsdk:"failed"`
	Live       types.Int64 `tfsdk:"live"`
}

func shardAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "Which part of a broadcast the run is; null for runs that are no shard.",
		Attributes: map[string]schema.Attribute{
			"index": computedInt("From 0 to `total` - 1: the place of its endpoint in the order of ids when the broadcast began."),
			"total": computedInt("How many shards the broadcast has."),
			"endpoint": computedString("Id of the endpoint for which the shard was made. If that endpoint is gone, another one " +
				"gets the shard; `response.endpoint` of each attempt says which."),
		},
	}
}

func shardCountsAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: "How many shards the broadcast has, by their state; null for runs without shards.",
		Attributes: map[string]schema.Attribute{
			"total":      computedInt("All shards."),
			"succeeded":  computedInt("Shards that succeeded."),
			"superseded": computedInt("Shards that their endpoints refused as stale."),
			"failed":     computedInt("Shards that ended in another way."),
			"live":       computedInt("Shards that have not ended."),
		},
	}
}

func flattenShard(s *run.Shard) *shardModel {
	if s == nil {
		return nil
	}
	return &shardModel{
		Index: types.Int64Value(int64(s.Index)), Total: types.Int64Value(int64(s.Total)), Endpoint: flattenOptional(s.Endpoint),
	}
}

func flattenShardCounts(c *run.ShardCounts) *shardCountsModel {
	if c == nil {
		return nil
	}
	return &shardCountsModel{
		Total: types.Int64Value(int64(c.Total)), Succeeded: types.Int64Value(int64(c.Succeeded)),
		Superseded: types.Int64Value(int64(c.Superseded)), Failed: types.Int64Value(int64(c.Failed)), Live: types.Int64Value(int64(c.Live)),
	}
}
