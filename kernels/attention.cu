// The attention forward that `fa-doctor smoke` runs on the GPU: FlashAttention-2's algorithm in one file.
//
// f16 and bf16, head dimension 64 or 128, grouped queries, sequences of any length packed one after the other,
// a window (causal is its special case), contiguous or paged keys and values, and the log-sum-exp of every row.
//
// One block of four warps computes 64 query rows of one head of one sequence. Scores and probabilities live in
// registers; keys and values pass through two shared tiles of 64 rows. While the scores of tile j are computed its
// values are on their way, and while those are used the keys of tile j + 1 are.
//
// No headers: NVRTC compiles it with nothing else installed (scripts/kernels.py). The PTX beside it is what ships;
// scripts/kernels.py also lowers its `.version`, so nothing here may need an instruction newer than PTX ISA 7.0.

typedef unsigned short u16;  // an f16 or bf16, by bit pattern
typedef unsigned int u32;    // two of them: the unit of the tensor core's registers
typedef long long i64;

#define DEVICE __device__ __forceinline__
#define MINUS_INFINITY __int_as_float(0xff800000)

enum : int {
  ROWS = 64,  // query rows of a block, 16 a warp
  COLS = 64,  // keys of a tile
  THREADS = 128,
  PAD = 8,  // elements added to a row of a shared tile, so that ldmatrix meets no bank conflict
};
#define WARP 0xffffffffu

// ---- the instructions that C++ does not have ----

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes to shared memory in the background; zeros, and no read, when `valid` is false.
DEVICE void copy_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void copy_wait() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// Four 8x8 matrices, from the row addresses that the lanes give: lane l holds row l/4, columns 2(l%4) and the next.
DEVICE void load_matrices(u32 (&r)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices_transposed(u32 (&r)[4], const u16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// What differs between the two element types: the tensor core's instruction and the rounding of a pair.
struct F16 {
  static DEVICE void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static DEVICE u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};
struct Bf16 {
  static DEVICE void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static DEVICE u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};

DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The four lanes l with equal l/4 hold one row of a matrix: combine over them.
DEVICE float max_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(WARP, x, 1));
  return fmaxf(x, __shfl_xor_sync(WARP, x, 2));
}
DEVICE float sum_of_row(float x) {
  x += __shfl_xor_sync(WARP, x, 1);
  return x + __shfl_xor_sync(WARP, x, 2);
}

// ---- the algorithm ----

struct Arguments {
  const u16* q;             // (total_q, heads_q, D)
  const u16* k;             // (total_k, heads_k, D), or (pages, page_size, heads_k, D)
  const u16* v;             // as k
  u16* o;                   // as q
  float* lse;               // (heads_q, total_q): natural logarithm, minus infinity for a row that sees no key
  const int* starts_q;      // (sequences + 1): first query row of each, and the total
  const int* starts_k;      // (sequences + 1): the same for keys; with pages only the differences count
  const int* pages;         // (sequences, pages_per_sequence), or null: keys and values lie one after the other
  int heads_q, heads_k, total_q, page_size, pages_per_sequence;
  float scale_log2;         // softmax scale times log2(e)
  int window_left, window_right;  // keys seen before and after the diagonal, -1 for all; causal is (-1, 0)
};

// Starts the copy of keys or values [n0, n0 + COLS) of one head to a shared tile. Rows past `length` become zeros:
// their probabilities are zero, but zero times a stale NaN would not be.
template <int D>
DEVICE void load_tile(u16* tile, const u16* base, i64 stride, const int* pages, int page_size, int n0, int length) {
  constexpr int CHUNKS = D / 8;  // of 16 bytes, in a row
#pragma unroll
  for (int i = 0; i < COLS * CHUNKS / THREADS; i++) {
    const u32 chunk = i * THREADS + threadIdx.x;
    const int r = chunk / CHUNKS, c = chunk % CHUNKS * 8;
    const bool valid = n0 + r < length;
    int n = valid ? n0 + r : 0;
    if (pages != nullptr) n = pages[n / page_size] * page_size + n % page_size;
    copy_async(tile + r * (D + PAD) + c, base + n * stride + c, valid);
  }
}

template <class T, int D> DEVICE void attention(const Arguments& a) {
  __shared__ __align__(16) u16 tile_k[COLS * (D + PAD)];
  __shared__ __align__(16) u16 tile_v[COLS * (D + PAD)];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4, pair = lane % 4 * 2;
  const int sequence = blockIdx.z, head = blockIdx.y, head_k = head / (a.heads_q / a.heads_k);
  const int start_q = a.starts_q[sequence], length_q = a.starts_q[sequence + 1] - start_q;
  const int start_k = a.starts_k[sequence], length_k = a.starts_k[sequence + 1] - start_k;
  // Under a causal mask the last rows have most to do: their blocks start first.
  const int m0 = (gridDim.x - 1 - blockIdx.x) * ROWS;
  if (m0 >= length_q) return;
  const int rows[2] = {m0 + warp * 16 + quad, m0 + warp * 16 + quad + 8};

  const i64 stride_q = (i64)a.heads_q * D, stride_k = (i64)a.heads_k * D;
  const u16* q = a.q + start_q * stride_q + head * D;
  const int* pages = a.pages == nullptr ? nullptr : a.pages + (i64)sequence * a.pages_per_sequence;
  const i64 offset_k = (pages == nullptr ? start_k * stride_k : 0) + head_k * D;
  const u16 *k = a.k + offset_k, *v = a.v + offset_k;

  // The queries stay in registers, laid out as the left operand of the tensor core.
  u32 query[D / 16][4];
#pragma unroll
  for (int s = 0; s < D / 16; s++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = rows[i & 1], c = s * 16 + (i >> 1) * 8 + pair;
      query[s][i] = r < length_q ? *(const u32*)(q + r * stride_q + c) : 0u;
    }

  // Query r meets its own position at key r + diagonal: both ends are aligned at the bottom right. Each row sees the
  // keys first..last; the block as a whole those that its highest row sees first and its lowest row last.
  const int diagonal = length_k - length_q;
  const bool left = a.window_left >= 0, right = a.window_right >= 0;
  int first[2], last[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    first[h] = left ? max(rows[h] + diagonal - a.window_left, 0) : 0;
    last[h] = right ? min(rows[h] + diagonal + a.window_right, length_k - 1) : length_k - 1;
  }
  const int n_begin = left ? max(m0 + diagonal - a.window_left, 0) / COLS * COLS : 0;
  const int n_end = right ? min(m0 + ROWS + diagonal + a.window_right, length_k) : length_k;

  float acc[D / 8][4], highest[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < D / 8; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) acc[i][j] = 0.f;

  if (n_begin < n_end) load_tile<D>(tile_k, k, stride_k, pages, a.page_size, n_begin, length_k);
  copy_commit();
  for (int n0 = n_begin; n0 < n_end; n0 += COLS) {
    copy_wait();
    __syncthreads();  // the keys are here, and every warp has used up the values of the last tile
    load_tile<D>(tile_v, v, stride_k, pages, a.page_size, n0, length_k);
    copy_commit();

    float score[COLS / 8][4];
#pragma unroll
    for (int i = 0; i < COLS / 8; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) score[i][j] = 0.f;
#pragma unroll
    for (int s = 0; s < D / 16; s++)
#pragma unroll
      for (int p = 0; p < COLS / 16; p++) {
        u32 b[4];
        const int r = p * 16 + lane % 8 + lane / 16 * 8, c = s * 16 + lane / 8 % 2 * 8;
        load_matrices(b, tile_k + r * (D + PAD) + c);
        T::multiply_add(score[2 * p], query[s], b[0], b[1]);
        T::multiply_add(score[2 * p + 1], query[s], b[2], b[3]);
      }

    // Only a tile on an edge of the mask needs one.
    if (n0 + COLS > length_k || (right && n0 + COLS - 1 > m0 + diagonal + a.window_right) ||
        (left && n0 < m0 + ROWS - 1 + diagonal - a.window_left)) {
#pragma unroll
      for (int i = 0; i < COLS / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int n = n0 + i * 8 + pair + (j & 1);
          if ((n < first[j >> 1]) | (n > last[j >> 1])) score[i][j] = MINUS_INFINITY;
        }
    }

    // Online softmax: rescale what is there to the new maximum, turn scores into probabilities.
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float m = highest[h];
#pragma unroll
      for (int i = 0; i < COLS / 8; i++) m = fmaxf(m, fmaxf(score[i][2 * h], score[i][2 * h + 1]));
      m = max_of_row(m);
      const float shift = m == MINUS_INFINITY ? 0.f : m * a.scale_log2;  // a row that has seen no key yet
      const float rescale = exp2_fast(highest[h] * a.scale_log2 - shift);
      highest[h] = m;
      float s = 0.f;
#pragma unroll
      for (int i = 0; i < COLS / 8; i++)
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; j++) {
          score[i][j] = exp2_fast(fmaf(score[i][j], a.scale_log2, -shift));
          s += score[i][j];
        }
      sum[h] = sum[h] * rescale + s;
#pragma unroll
      for (int i = 0; i < D / 8; i++) {
        acc[i][2 * h] *= rescale;
        acc[i][2 * h + 1] *= rescale;
      }
    }

    copy_wait();
    __syncthreads();  // the values are here, and every warp has used up the keys
    if (n0 + COLS < n_end) load_tile<D>(tile_k, k, stride_k, pages, a.page_size, n0 + COLS, length_k);
    copy_commit();

#pragma unroll
    for (int s = 0; s < COLS / 16; s++) {
      // Two neighbouring result tiles of the first product are one left operand of the second.
      const u32 p[4] = {T::pack(score[2 * s][0], score[2 * s][1]), T::pack(score[2 * s][2], score[2 * s][3]),
                        T::pack(score[2 * s + 1][0], score[2 * s + 1][1]),
                        T::pack(score[2 * s + 1][2], score[2 * s + 1][3])};
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        u32 b[4];
        const int r = s * 16 + lane % 8 + lane / 8 % 2 * 8, c = d * 16 + lane / 16 * 8;
        load_matrices_transposed(b, tile_v + r * (D + PAD) + c);
        T::multiply_add(acc[2 * d], p, b[0], b[1]);
        T::multiply_add(acc[2 * d + 1], p, b[2], b[3]);
      }
    }
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float total = sum_of_row(sum[h]);
    const float scale = total > 0.f ? 1.f / total : 0.f;
    const int r = rows[h];
    if (r >= length_q) continue;
    u16* o = a.o + (start_q + r) * stride_q + head * D;
#pragma unroll
    for (int i = 0; i < D / 8; i++)
      *(u32*)(o + i * 8 + pair) = T::pack(acc[i][2 * h] * scale, acc[i][2 * h + 1] * scale);
    if (pair == 0)
      a.lse[(i64)head * a.total_q + start_q + r] =
          total > 0.f ? (highest[h] * a.scale_log2 + log2_fast(total)) * 0.69314718f : MINUS_INFINITY;
  }
}

// The parameters one by one, in the order of `Arguments`: that is what a launch passes. The number of blocks that must
// fit on a multiprocessor keeps ptxas from aiming at one more and spilling for it.
#define ENTRY(NAME, T, D, BLOCKS)                                                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                      \
      NAME(const u16* q, const u16* k, const u16* v, u16* o, float* lse, const int* starts_q, const int* starts_k,   \
           const int* pages, int heads_q, int heads_k, int total_q, int page_size, int pages_per_sequence,           \
           float scale_log2, int window_left, int window_right) {                                                    \
    attention<T, D>({q, k, v, o, lse, starts_q, starts_k, pages, heads_q, heads_k, total_q, page_size,               \
                     pages_per_sequence, scale_log2, window_left, window_right});                                    \
  }
ENTRY(fa_fwd_f16_d64, F16, 64, 3)
ENTRY(fa_fwd_f16_d128, F16, 128, 2)
ENTRY(fa_fwd_bf16_d64, Bf16, 64, 3)
ENTRY(fa_fwd_bf16_d128, Bf16, 128, 2)
