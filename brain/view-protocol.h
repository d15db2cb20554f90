/*
 * view-protocol.h - what limbd and a limb-fs say to each other, on the stream
 * socket STATE/envs/ID/fs.sock on which limb-fs listens.
 *
 * Frames of 16 bytes in the machine's byte order (both ends are on one):
 *	limbd -> limb-fs	PUBLISH seq: the index holds seq
 *				STALE 1: the line to the environment is down; 0: up
 *				QUIT: unmount and end
 *				MERGED: packs were removed; who has them open closes them
 *				OVER_AT seq, OVER number: of the view's log all up to number is
 *				over, and the index shows it at seq
 *				DRAIN token: all that was written is to be in the log
 *				REFUSED number, arg errno: that entry of the log was not made;
 *				before the OVER that it is in
 *				CLASSES: env.json says anew when calls return
 *	limb-fs -> limbd	SEEN seq: every cache agrees with seq
 *				WROTE: there is more in its log
 *				DRAINED token
 *				WAITS number: a call returns when that entry is over
 *				TOLD number, arg n: who made the n entries up to there was told
 *				that they are refused
 * A frame of another kind is passed over.
 */
#ifndef BRAIN_VIEW_PROTOCOL_H
#define BRAIN_VIEW_PROTOCOL_H

#include <stdint.h>

enum view_message {
	VIEW_PUBLISH = 1,
	VIEW_STALE = 2,
	VIEW_QUIT = 3,
	VIEW_MERGED = 4,
	VIEW_OVER_AT = 5,
	VIEW_OVER = 6,
	VIEW_DRAIN = 7,
	VIEW_REFUSED = 8,
	VIEW_CLASSES = 9,
	VIEW_SEEN = 16,
	VIEW_WROTE = 17,
	VIEW_DRAINED = 18,
	VIEW_WAITS = 19,
	VIEW_TOLD = 20,
};

struct view_frame {
	uint32_t kind, arg;
	uint64_t seq;
};

#endif
