"""One thread of torch each: the number before comes back, whoever ends first."""

import torch

from sfumato._torch import one_thread_each


def test_two_that_overlap_give_back_the_number_before_both() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = one_thread_each(), one_thread_each()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
