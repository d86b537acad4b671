// Package top is a live view of a server's tubes on a terminal.
//
// A [Collector] asks the server and makes a [Sample] of what it says; a [Model] shows the last sample
// and takes keys; its View makes the text of a frame from a model's state alone, so that frames can be
// tested without a terminal.
//
// # What is asked
//
// The wire has no summary of all tubes, and a server may have 100,000 of them. Each look therefore
// asks for the statistics of [Collector.Limit] tubes at most: the first ones by name of those that the
// filter leaves. When they are sorted by name it is known which are shown, and only those are asked
// about, wherever they stand. The list of names is asked for at each look while it is short, and
// otherwise each [listEvery]. The age of the next job is asked for tubes that are shown and have ready
// jobs.
//
// # Ages
//
// The age of a tube is that of the job that would be taken next. It is the oldest ready job if all
// have one priority. It needs the extension list-jobs; on other servers there is none.
package top
