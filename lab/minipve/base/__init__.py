"""What every part of minipve needs: files, processes, errors, paths, figures of this machine."""
