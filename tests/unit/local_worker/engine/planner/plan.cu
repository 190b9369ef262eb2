// FlashInfer's own planner, to be called from Python.
#include <cstdio>
#include <exception>
#include <vector>

#include <flashinfer/attention/scheduler.cuh>

extern "C" int processors;  // of the device; see device.c

// Return 0 if a workspace of `bytes` suffices for the batch, else 1 with the planner's error in `text`.
extern "C" int plan(int device_processors, int heads, int kv_heads, int size, int page, int window_left,
                    int graph_tokens, int requests, int* queries, int* pages, long long bytes, char* text, int most) {
  processors = device_processors;
  static std::vector<char> integers(8 << 20), pinned(8 << 20);
  flashinfer::PrefillPlanInfo info;
  try {
    flashinfer::PrefillPlan<int32_t>(reinterpret_cast<void*>(16), bytes, integers.data(), pinned.data(),
                                     integers.size(), info, queries, pages,
                                     graph_tokens ? graph_tokens : queries[requests], requests, heads, kv_heads, size,
                                     size, page, graph_tokens > 0, 2, window_left, -1, false, 0, nullptr);
  } catch (const std::exception& error) {
    std::snprintf(text, most, "%s", error.what());
    return 1;
  }
  return 0;
}
