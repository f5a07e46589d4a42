"""A bare torch loop that does one private federated round by hand, as tightly as PyTorch alone allows.

One resident model; no copy a client beyond the parameters; data already converted and resident; one flat buffer for the
global parameters, the change and the sum. `"batched": true` trains all clients in one operation (`torch.func.vmap`).
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy
from workload import SETTINGS, Gate, config, mean_loss, network, tensors


def main() -> None:
    """Serve rounds until the input ends."""
    given = config()
    name = given["setting"]
    setting = SETTINGS[name]
    model = network(name)
    inputs, labels = tensors(name)
    if given.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    # The parameters become views of one flat vector: copying them in and taking the change are single operations.
    # (A dense layout is kept, channels-last included.)
    flat = torch.cat([p.detach().permute(*order(p)).reshape(-1) for p in parameters])
    offset = 0
    for p in parameters:
        view = flat[offset : offset + p.numel()].view(p.detach().permute(*order(p)).shape)
        p.data = view.permute(*inverse(order(p)))
        offset += p.numel()
    optimizer = torch.optim.SGD(parameters, lr=setting.learning_rate, foreach=True)
    generator = torch.Generator().manual_seed(1)
    start = flat.clone()
    total = torch.zeros_like(flat)
    delta = torch.empty_like(flat)
    batches = [
        [
            (x.contiguous(memory_format=torch.channels_last) if given.get("channels_last") else x, y)
            for x, y in zip(inputs[c].split(setting.batch), labels[c].split(setting.batch))
        ]
        for c in range(setting.clients)
    ]

    def release() -> None:
        """Noise, divide by the planned cohort, server step."""
        noise = torch.randn(total.shape, generator=generator)
        total.add_(noise, alpha=setting.noise_multiplier * setting.clip_norm)
        start.add_(total, alpha=1 / setting.clients)

    def one_round() -> None:
        total.zero_()
        for own in batches:
            flat.copy_(start)
            for _ in range(setting.epochs):
                for x, y in own:
                    optimizer.zero_grad(set_to_none=True)
                    cross_entropy(model(x), y).backward()
                    optimizer.step()
            torch.sub(flat, start, out=delta)
            norm = float(delta.norm())
            total.add_(delta, alpha=min(1.0, setting.clip_norm / max(norm, 1e-12)))
        release()

    def loss_of(state: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(torch.func.functional_call(model, state, (x,)), y)

    step = torch.func.vmap(torch.func.grad(loss_of))
    names = [n for n, _ in model.named_parameters()]

    def one_batched_round() -> None:
        total.zero_()
        flat.copy_(start)
        many = {n: p.detach().expand(setting.clients, *p.shape).clone() for n, p in zip(names, parameters)}
        for _ in range(setting.epochs):
            for x, y in zip(inputs.split(setting.batch, dim=1), labels.split(setting.batch, dim=1)):
                for n, gradient in step(many, x, y).items():
                    many[n].sub_(gradient, alpha=setting.learning_rate)
        change = torch.cat([many[n].flatten(1) for n in names], dim=1).sub_(start)
        scale = (setting.clip_norm / change.norm(dim=1).clamp_min(1e-12)).clamp_max(1.0)
        torch.mv(change.t(), scale, out=total)
        release()

    def loss() -> float:
        flat.copy_(start)
        return mean_loss(model, inputs, labels)

    gate = Gate(loss)
    run = one_batched_round if given.get("batched") else one_round
    while gate.wait():
        run()


def order(p: torch.Tensor) -> tuple[int, ...]:
    """The order of the dimensions in memory: channels last for a weight that is stored so."""
    return (0, 2, 3, 1) if p.dim() == 4 and not p.is_contiguous() else tuple(range(p.dim()))


def inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `dims`."""
    return tuple(dims.index(i) for i in range(len(dims)))


if __name__ == "__main__":
    main()
