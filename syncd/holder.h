/*
 * holder.h - the process that owns one job: its command, its pipes or terminal,
 * its output files, its end.
 *
 * A holder waits as a spare until a START comes. Then it is a subreaper above
 * everything the command starts, writes DIR/jobs/ID/{record,stdout,stderr}, and
 * tells the daemon, if there is one, by link.h; nothing it does depends on that.
 *
 * The job ends when the command itself does: what is in the pipes at that moment
 * belongs to it. If others live on, or hold the pipes, for 50 ms more, it is
 * `background`: the end is reported, their output from then on is read and
 * dropped, and the holder stays until they have ended. At a timeout all
 * descendants get SIGTERM, 2 s later SIGKILL until none is left; only then the
 * end is reported.
 */
#ifndef SYNCD_HOLDER_H
#define SYNCD_HOLDER_H

/* dir: DIR; link: socket to the daemon. The exit status of the process. */
int holder_main(int dir, int link);

#endif
