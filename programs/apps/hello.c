#include <math.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
    for (int n = 1; n < argc; n++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        printf("hello, %s: %.12f\n", argv[n], sqrt(n));
    }
    return 0;
}
