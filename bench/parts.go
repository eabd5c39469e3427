package main

// appendRow is one way of appending durably to many logs.
type appendRow struct {
	Groups int    `json:"groups"`
	Bytes  int    `json:"bytes"`
	Way    string `json:"way"`
	Rate   sample `json:"per_second"`
	// Plain and Reserved are how many times the rate of plain logs this is, growing and preallocated.
	Plain    float64 `json:"times_plain"`
	Reserved float64 `json:"times_preallocated"`
}

// memory is what messages and idle groups cost.
type memory struct {
	Messages       int     `json:"messages"`
	MessageBytes   int     `json:"message_bytes"`
	HeapPerMessage float64 `json:"heap_bytes_per_message"`
	DiskPerMessage float64 `json:"disk_bytes_per_message"`
	Groups         int     `json:"groups"`
	RSSOne         int64   `json:"rss_one_bytes"`
	RSSMany        int64   `json:"rss_many_bytes"`
	DiskMany       int64   `json:"disk_many_bytes"`
	RSSPerGroup    float64 `json:"rss_bytes_per_group"`
	DiskPerGroup   float64 `json:"disk_bytes_per_group"`
}

// reopen is how long a store takes to open after its process was killed.
type reopen struct {
	Groups       int    `json:"groups"`
	Messages     int    `json:"messages"`
	MessageBytes int    `json:"message_bytes"`
	Seconds      sample `json:"seconds"`
}
