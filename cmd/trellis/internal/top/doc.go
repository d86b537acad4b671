// Package top is a live view of a server's tubes on a terminal.
//
// A [Collector] asks the server and makes a [Sample] of what it says; a [Model] shows the last sample
// and takes keys; its View makes the text of a frame from a model's state alone, so that frames can be
// tested without a terminal.
//
// # What is asked
//
// A server may have 100,000 tubes. Each look therefore asks for the statistics of [Collector.Limit] tubes at most:
// the first ones by name of those that the filter leaves. When they are sorted by name it is known which are shown,
// and only those are asked about, wherever they stand. The list of names is asked for at each look while it is short,
// and otherwise each [listEvery].
//
// A server that has stats-tubes tells of 1,000 tubes at once, the first ones by name or those behind one. As long as
// the limit lets all tubes be asked about, or no filter and no order by name makes others of interest than the first
// ones, all questions of a look are sent together: it takes one round trip for 1,000 tubes. Otherwise there is a
// second one, with a question for each tube, as there is for a server without stats-tubes.
//
// # Ages
//
// The age of a tube is for how long its oldest ready job has been ready, of which stats-tubes tells. A server that has
// only list-jobs is asked how old the next jobs are of the tubes that are shown; it is the same if all have one
// priority and were ready when they were put. Other servers tell of neither.
package top
