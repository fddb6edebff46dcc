/* The controller as one of several copies, in C: what crates/testing/flight/src/copies.rs does, to the bit. It uses the
 * processor's floating point unit, where the copies in Rust have integer code for each operation. IEEE 754 defines
 * sums, products, quotients and square roots to the bit, so the order of the operations is all that counts.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef LAW_H
#define LAW_H

#include <stdint.h>

enum { STATE = 10 };

struct vec {
    float x, y, z;
};
struct quat {
    float w;
    struct vec v;
};
/* Words, as they are in messages. */
struct input {
    uint64_t sensors[6], setpoint[4];
};
struct value {
    uint64_t motors[2], state[STATE];
};

static uint64_t pair(float low, float high)
{
    uint32_t bits[2];
    __builtin_memcpy(&bits[0], &low, 4);
    __builtin_memcpy(&bits[1], &high, 4);
    return bits[0] | (uint64_t)bits[1] << 32;
}
static float low(uint64_t word)
{
    uint32_t bits = (uint32_t)word;
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}
static float high(uint64_t word) { return low(word >> 32); }
static struct vec vec_of(const uint64_t *words) { return (struct vec){low(words[0]), high(words[0]), low(words[1])}; }
static struct quat quat_of(const uint64_t *words)
{
    return (struct quat){low(words[0]), {high(words[0]), low(words[1]), high(words[1])}};
}
static void put_vec(uint64_t *words, struct vec v)
{
    words[0] = pair(v.x, v.y);
    words[1] = pair(v.z, 0.0f);
}

static struct vec plus(struct vec a, struct vec b) { return (struct vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static struct vec minus(struct vec a, struct vec b) { return (struct vec){a.x - b.x, a.y - b.y, a.z - b.z}; }
static struct vec times(struct vec a, struct vec b) { return (struct vec){a.x * b.x, a.y * b.y, a.z * b.z}; }
static struct vec scale(struct vec a, float k) { return (struct vec){a.x * k, a.y * k, a.z * k}; }
static float dot(struct vec a, struct vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static struct vec cross(struct vec a, struct vec b)
{
    return (struct vec){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
static float root(float a)
{
    /* The instruction, and no call of a library for negative numbers. */
    __asm__("sqrtss %0, %0" : "+x"(a));
    return a;
}
static float absolute(float a) { return __builtin_fabsf(a); }
static struct vec unit(struct vec a)
{
    float norm = root(dot(a, a));
    return norm > 0.0f ? scale(a, 1.0f / norm) : a;
}
static float within(float a, float least, float most) { return a < least ? least : a > most ? most : a; }
static struct vec limited(struct vec a, struct vec by)
{
    return (struct vec){within(a.x, -by.x, by.x), within(a.y, -by.y, by.y), within(a.z, -by.z, by.z)};
}

static struct quat product(struct quat a, struct quat b)
{
    return (struct quat){a.w * b.w - dot(a.v, b.v), plus(plus(scale(b.v, a.w), scale(a.v, b.w)), cross(a.v, b.v))};
}
static struct quat inverse(struct quat a) { return (struct quat){a.w, scale(a.v, -1.0f)}; }
static struct vec rotated(struct quat q, struct vec r)
{
    struct vec t = scale(cross(q.v, r), 2.0f);
    return plus(plus(r, scale(t, q.w)), cross(q.v, t));
}
static struct quat integrated(struct quat q, struct vec rates, float dt)
{
    struct quat step = product(q, (struct quat){0.0f, scale(rates, 0.5f * dt)});
    struct quat sum = {q.w + step.w, plus(q.v, step.v)};
    float k = 1.5f - 0.5f * (sum.w * sum.w + dot(sum.v, sum.v));
    return (struct quat){sum.w * k, scale(sum.v, k)};
}
/* The way to turn from an attitude to a near one. */
static struct vec way(struct quat from, struct quat to)
{
    struct quat d = product(inverse(from), to);
    float sign = d.w < 0.0f ? -1.0f : 1.0f, s = dot(d.v, d.v);
    return scale(d.v, 2.0f * sign * (1.0f + s * (0.16666667f + s * 0.075f)));
}

#define DT 0.001f
#define GRAVITY 9.81f
#define MAX_THRUST 6.0f
#define TORQUE_PER_THRUST 0.016f
static const struct vec UP = {0.0f, 0.0f, 1.0f};
static const struct vec FIELD = {0.438371f, 0.0f, -0.898794f};
static const struct vec INERTIA = {0.009f, 0.010f, 0.016f};

/* Mahony's filter: attitude and bias go on; the rates without their bias. */
static struct vec estimate(struct quat *attitude, struct vec *bias, const uint64_t *sensors)
{
    struct vec rates = vec_of(sensors), force = vec_of(sensors + 2), field = vec_of(sensors + 4);
    struct quat to_body = inverse(*attitude);
    struct vec up = rotated(to_body, UP), north = rotated(to_body, FIELD);
    float off = 1.0f - absolute(root(dot(force, force)) / GRAVITY - 1.0f) / 0.3f;
    float weight = off > 0.0f ? off : 0.0f;
    struct vec correction = plus(scale(cross(unit(force), up), 0.15f * weight), scale(cross(unit(field), north), 2.5f));
    *bias = minus(*bias, scale(correction, 0.02f * DT));
    rates = minus(rates, *bias);
    *attitude = integrated(*attitude, plus(rates, correction), DT);
    return rates;
}

/* Shares thrust and torques among the motors; yaw gives way. */
static void mix(float thrust, struct vec torque, float *motors)
{
    float arm = 4.0f * 0.18f * 0.70710678f, base = thrust / 4.0f;
    float roll = torque.x / arm, pitch = torque.y / arm, yaw = torque.z / (4.0f * TORQUE_PER_THRUST);
    float level[4] = {base + roll - pitch, base - roll - pitch, base + roll + pitch, base - roll + pitch};
    float turn[4] = {yaw, -yaw, -yaw, yaw}, room = 1.0f;
    for (int n = 0; n < 4; n++) {
        float left = turn[n] > 0.0f ? MAX_THRUST - level[n] : level[n];
        float part = absolute(turn[n]) > 1e-6f ? within(left / absolute(turn[n]), 0.0f, 1.0f) : 1.0f;
        room = part < room ? part : room;
    }
    for (int n = 0; n < 4; n++)
        motors[n] = within((level[n] + turn[n] * room) / MAX_THRUST, 0.0f, 1.0f);
}

/* One release, from a state to the next one. */
static void law(const uint64_t *state, const struct input *input, struct value *made)
{
    static const struct vec attitude_gain = {9.0f, 9.0f, 5.0f}, rate_limit = {5.0f, 5.0f, 2.5f};
    static const struct vec rate_gain = {22.0f, 22.0f, 12.0f}, rate_integral = {40.0f, 40.0f, 15.0f};
    static const struct vec rate_derivative = {0.25f, 0.25f, 0.0f}, integral_limit = {60.0f, 60.0f, 20.0f};
    struct quat attitude = quat_of(state);
    struct vec bias = vec_of(state + 2), integral = vec_of(state + 4), last = vec_of(state + 6);
    struct vec derivative = vec_of(state + 8);
    struct vec rates = estimate(&attitude, &bias, input->sensors);

    struct vec turn = way(attitude, quat_of(input->setpoint));
    struct vec wanted = limited(plus(times(turn, attitude_gain), vec_of(input->setpoint + 2)), rate_limit);
    struct vec error = minus(wanted, rates);
    integral = limited(plus(integral, scale(times(error, rate_integral), DT)), integral_limit);
    struct vec slope = scale(minus(rates, last), 1.0f / DT);
    derivative = plus(derivative, scale(minus(slope, derivative), DT / (0.004f + DT)));
    struct vec acceleration = minus(plus(times(error, rate_gain), integral), times(derivative, rate_derivative));
    float up = rotated(attitude, UP).z, motors[4];
    mix(GRAVITY / (up > 0.5f ? up : 0.5f), times(acceleration, INERTIA), motors);

    made->motors[0] = pair(motors[0], motors[1]);
    made->motors[1] = pair(motors[2], motors[3]);
    made->state[0] = pair(attitude.w, attitude.v.x);
    made->state[1] = pair(attitude.v.y, attitude.v.z);
    put_vec(made->state + 2, bias);
    put_vec(made->state + 4, integral);
    put_vec(made->state + 6, rates);
    put_vec(made->state + 8, derivative);
}

/* The very first state: level, at rest. */
static void fresh(uint64_t *state)
{
    for (int n = 0; n < STATE; n++)
        state[n] = 0;
    state[0] = pair(1.0f, 0.0f);
}

#endif
