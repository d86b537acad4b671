// Command trellis is the operator's tool: it looks at a server's tubes, jobs and connections and does things to them;
// `trellis bench` measures any server that speaks the beanstalkd protocol, and checks that it keeps its promises;
// `trellis binlog` checks and reads what a server has on disk; `trellis cluster` looks after servers that are one;
// `trellis ping` asks whether one answers; `trellis token` makes tokens for its clients.
//
// The exit status of a command that speaks to a server or to a cluster is 0 when it is done, 1 when nothing was found,
// 2 when the command line is wrong, 3 when nobody was reached, and 4 when it was refused; 130 when it was interrupted.
// That of binlog is 2 when a binlog is damaged, and 1 for any other trouble; that of bench is 1, also when a server
// that was measured lost, duplicated or corrupted a job or answered with an error; those of ping and token are 1.
package main
