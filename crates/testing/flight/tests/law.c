/* The law of guests/copy-c as a filter: words of state and input in, words of motors and state out.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "../../../../guests/copy-c/law.h"
#include <stdio.h>

int main(void)
{
    uint64_t state[STATE];
    struct input input;
    struct value made;
    fresh(state);
    fwrite(state, sizeof state, 1, stdout);
    while (fread(state, sizeof state, 1, stdin) == 1 && fread(&input, sizeof input, 1, stdin) == 1) {
        law(state, &input, &made);
        fwrite(&made, sizeof made, 1, stdout);
    }
    return 0;
}
