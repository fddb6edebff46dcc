//! The workloads' computations, in integers: filters over a picture, an orthogonal transform of its blocks, a bank of
//! resonators. The number of runs differs from stage to stage.

const SIDE: usize = 24;

/// Brightness of a picture, row by row.
pub type Picture = [i32; SIDE * SIDE];

/// A picture with structure, another one in each job.
pub fn picture(job: u64) -> Picture {
    core::array::from_fn(|n| {
        let (x, y) = (n % SIDE, n / SIDE);
        ((x * y) as i32 ^ (x as i32 * 7 + job as i32)) & 0xFF
    })
}

/// Filters a picture, row by row, by a function of each pixel's neighbourhood; the margin stays.
fn filter(picture: &Picture, f: impl Fn([i32; 9]) -> i32) -> Picture {
    let mut out = *picture;
    for y in 1..SIDE - 1 {
        for x in 1..SIDE - 1 {
            let at = |n: usize| picture[(y + n / 3 - 1) * SIDE + x + n % 3 - 1];
            out[y * SIDE + x] = f(core::array::from_fn(at));
        }
    }
    out
}

/// Gradients by Sobel's operators.
fn gradients(p: [i32; 9]) -> [i32; 2] {
    [
        p[2] + 2 * p[5] + p[8] - p[0] - 2 * p[3] - p[6],
        p[6] + 2 * p[7] + p[8] - p[0] - 2 * p[1] - p[2],
    ]
}

/// Passes over the picture by stage: edges, smoothing, corners.
pub fn image(stage: usize, job: u64) -> i32 {
    let mut seen = picture(job);
    for _ in 0..[15, 48, 77][stage] {
        seen = match stage {
            0 => filter(&seen, |p| {
                let [dx, dy] = gradients(p);
                (dx.abs() + dy.abs()).min(255)
            }),
            1 => filter(&seen, |p| p.iter().sum::<i32>() / 9),
            _ => filter(&seen, |p| {
                let [dx, dy] = gradients(p);
                ((((dx * dx) >> 4) * ((dy * dy) >> 4)) >> 12).min(255) ^ p[4]
            }),
        };
    }
    seen.iter().fold(0, |sum, p| sum.wrapping_mul(31).wrapping_add(*p))
}

/// Hadamard's transform of eight numbers, its own inverse but for a factor of eight.
fn transform(mut v: [i32; 8]) -> [i32; 8] {
    for width in [1, 2, 4] {
        for n in (0..8).filter(|n| n & width == 0) {
            (v[n], v[n + width]) = (v[n] + v[n + width], v[n] - v[n + width]);
        }
    }
    v
}

/// Encodes the picture, and decodes it too from the second stage on; so often.
pub fn codec(stage: usize, job: u64) -> i32 {
    let mut seen = picture(job);
    for _ in 0..[13, 21, 21][stage] {
        for block in seen.as_chunks_mut::<8>().0 {
            let coarse = transform(*block).map(|c| c & !7);
            *block = if stage == 0 {
                coarse.map(|c| c & 0xFF)
            } else {
                transform(coarse).map(|c| c >> 3)
            };
        }
    }
    seen.iter().fold(0, |sum, p| sum.wrapping_mul(31).wrapping_add(*p))
}

/// Samples of resonators that the job's number excites.
pub fn sound(_: usize, job: u64) -> i32 {
    let mut voices: [[i32; 2]; 8] =
        core::array::from_fn(|n| [(n as i32 + 1) << 12, job as i32 & 0xFFF]);
    let mut out = 0i32;
    for _ in 0..2_430 {
        for (n, [now, before]) in voices.iter_mut().enumerate() {
            let next = ((*now >> 8) * (505 - n as i32 * 8)) - *before;
            (*before, *now) = (*now, next.clamp(-1 << 20, 1 << 20));
            out = out.wrapping_add(*now >> 6);
        }
    }
    out
}
