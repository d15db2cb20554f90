/*
 * swap.c - exchanges two names as fast as it can, until it is told to end.
 *
 *	swap A B
 */
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t over;

static void on_signal(int sig)
{
	over = 1;
}

int main(int argc, char **argv)
{
	unsigned long n = 0;

	if (argc != 3)
		errx(2, "usage: swap A B");
	(void)signal(SIGTERM, on_signal);
	while (!over) {
		/* While they are being made, they are not there. */
		if (renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) < 0)
			(void)usleep(100);
		else
			n++;
	}
	(void)printf("%lu swaps\n", n);
	return 0;
}
